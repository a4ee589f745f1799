"""Differential privacy: clipping and noise against a naive second implementation, and what one client can change."""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import asdict, replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from attackers import ATTACKS, attack
from every_method import EVERY_METHOD
from problems import busy, classification
from scipy.stats import kstest
from torch import nn

import fedmim
from fedmim.divergence import diverged
from fedmim.errors import UserError
from fedmim.simulation import privacy
from fedmim.simulation.privacy import NoiseShares, PrivateMean, next_clip
from fedmim.simulation.public_point import PublicPoints
from fedmim.simulation.randomness import gaussian

PRIVATE = {"local_steps": 3, "dp_noise": 0.7, "dp_clip": 0.4, "dp_delta": 1e-3}


def private(**overrides):
    return busy(**PRIVATE | overrides)


def start(algorithm=None, task=None, **overrides):
    options = {name: overrides.pop(name) for name in ("folder", "resume", "noise_seed") if name in overrides}
    return fedmim.rounds(algorithm or fedmim.FedAvg(), task or classification(), *private(**overrides), **options)


def naive_noise(purpose, seed, round, size):
    digest = hashlib.shake_256(f"privacy {purpose} {seed} {round}".encode()).digest(8 * size)
    numbers = [int.from_bytes(digest[8 * i : 8 * i + 8], "little") // 2**11 for i in range(size)]
    return np.array([NormalDist().inv_cdf((number + 0.5) / 2**53) for number in numbers])


def spied(run):
    """The run, and the uploads of its last round as the server receives them."""
    honest, uploads = run._execute, []

    def execute(algorithm, model, work):
        uploads.clear()
        for reply in honest(algorithm, model, work):
            received = algorithm.receive(reply.upload, work.down, work.lr, reply.steps)
            uploads.append({name: vector.clone() for name, vector in received.items()})
            yield reply

    run._execute = execute
    return run, uploads


@pytest.fixture
def released(monkeypatch):
    """What is released of each round of the test's runs, and nothing else: the input of `update`."""
    found, release = [], PrivateMean.release

    def spy(self, *arguments):
        found.append(release(self, *arguments))
        return found[-1]

    monkeypatch.setattr(PrivateMean, "release", spy)
    return found


def test_the_noise_is_standard_normal_and_another_one_for_each_purpose_seed_and_round():
    draws = [gaussian(*key, 100_000) for key in (("a", 1, 2), ("b", 1, 2), ("a", 2, 2), ("a", 1, 3))]
    for draw in draws:
        assert kstest(draw.numpy(), "norm").pvalue > 0.01
    correlations = np.corrcoef(torch.stack(draws).numpy()) - np.eye(4)
    assert np.abs(correlations).max() < 5 / math.sqrt(100_000)
    assert torch.equal(gaussian("a", 1, 2, 100_000), draws[0])
    assert np.allclose(gaussian("privacy x", 5, 6, 50), naive_noise("x", 5, 6, 50), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("quantile", [None, 0.5])
@pytest.mark.parametrize("name", ["fedavg", "fedmim", "scaffold", "fedexp", "mimelite", "fedavg+leap"])
def test_a_round_is_that_of_a_naive_implementation(name, quantile, released):
    """In numpy, from the uploads: differences from the public point, clipped jointly, and noise by another route."""
    algorithm, z, clip = EVERY_METHOD[name], 0.7, 0.4
    run, uploads = spied(start(algorithm, dp_clip_quantile=quantile, seed=3))
    planned, clients = 4, 7
    sigma_b = max(planned / 20, z)
    z_sum = z if quantile is None else 1 / math.sqrt(1 / z**2 - 1 / (2 * sigma_b) ** 2)
    for t in range(3):
        down, lr = algorithm.broadcast(run.state), run.settings.lr_at(t)
        before = run.state
        point = PublicPoints(algorithm, run.settings, down, run.server.buffers, lr).at(3)
        next(run)
        names = list(uploads[0])
        sums, within = {key: np.zeros(len(point[key])) for key in names}, 0
        for upload in uploads:
            parts = {key: (upload[key] - point[key]).numpy() for key in names}
            norm = math.sqrt(sum((part**2).sum() for part in parts.values()))
            within += norm <= clip
            for key in names:
                sums[key] += parts[key] * min(1, clip / norm)
        mean = {}
        for key in names:
            noise = z_sum * clip * naive_noise(key, 3, t, len(point[key]))
            mean[key] = point[key] + torch.from_numpy((sums[key] + noise) / planned)
            torch.testing.assert_close(released[-1].means[key], mean[key], rtol=1e-9, atol=1e-12)
        facts = fedmim.Round(t, lr, 1.0, planned / clients)
        expected = algorithm.update(before, mean, facts)
        torch.testing.assert_close(run.state.params, expected.params, rtol=1e-9, atol=1e-12)
        if quantile is not None:
            fraction = (within + sigma_b * naive_noise("clip", 3, t, 1)[0]) / planned
            clip *= math.exp(-0.2 * (fraction - quantile))
        assert run.server.clip == pytest.approx(clip, rel=1e-9)


def test_the_noise_on_the_mean_is_z_times_the_clip_norm_over_the_planned_clients():
    point = {"params": torch.zeros(100_000, dtype=torch.float64)}
    mean = PrivateMean(point, clip=0.5)
    mean.add({"params": torch.full((100_000,), 1e-9, dtype=torch.float64)}, 1e-9 * math.sqrt(100_000))
    settings = fedmim.Settings(participation=0.2, dp_noise=3.0, dp_clip=0.5, local_steps=1)
    found = mean.release(settings, 100, seed=1, round=0).means["params"]  # one of 20 planned clients replied
    assert found.std().item() == pytest.approx(3.0 * 0.5 / 20, rel=0.01)


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_one_client_changes_what_is_released_by_at_most_twice_the_clip_norm(name, released):
    """Whatever it sends: the rest, and all noise, is the same."""
    algorithm, planned, clip = EVERY_METHOD[name], 4, 0.4
    honest = start(algorithm, dp_clip_quantile=0.5)
    client = next(honest).clients[0]
    next(honest)
    first = released.pop(0)
    released.clear()
    for change in (*ATTACKS, "nothing finite"):
        task = classification()
        if change == "nothing finite":
            task.clients[client] = (task.clients[client][0] * torch.nan, task.clients[client][1])
        run = start(algorithm, task, dp_clip_quantile=0.5)
        if change != "nothing finite":
            attack(run, frozenset({client}), change)
        record = next(run)
        other = released.pop()
        parts = [other.means[key] - vector for key, vector in first.means.items()]
        assert torch.cat(parts).norm().item() <= 2 * clip / planned * (1 + 1e-9), change
        assert abs(math.log(other.clip / first.clip)) <= 0.2 / planned + 1e-12
        assert (other.share, other.epsilon) == (first.share, first.epsilon)
        assert (record.train_loss, record.consistency) == (None, None)


def test_two_opposite_uploads_reach_that_bound():
    point = {"params": torch.zeros(3, dtype=torch.float64)}
    settings = fedmim.Settings(participation=1.0, dp_noise=1.0, dp_clip=0.5, local_steps=1)
    means = []
    for sign in (1.0, -1.0):
        mean = PrivateMean(point, clip=0.5)
        mean.add({"params": sign * torch.tensor([1e6, 0.0, 0.0], dtype=torch.float64)}, 1e6)
        means.append(mean.release(settings, 1, seed=1, round=0).means["params"])
    assert (means[0] - means[1]).norm().item() == pytest.approx(2 * 0.5, rel=1e-9)


def test_uploads_within_the_clip_norm_are_not_changed(released):
    """With next to no noise the model is that of the plain mean."""
    close = start(dp_clip=1e6, dp_noise=1e-12)
    plain = fedmim.simulate(fedmim.FedAvg(), classification(), *busy(local_steps=3))
    for _ in close:
        pass
    torch.testing.assert_close(close.params, plain.params, rtol=1e-4, atol=1e-5)


def test_a_round_without_a_single_upload_still_adds_noise():
    task = classification()
    task = replace(task, clients=[(x * torch.nan, y) for x, y in task.clients])
    run = start(task=task)
    before = run.params.clone()
    record = next(run)
    assert record.refused == 4
    assert not torch.equal(run.params, before)
    assert not diverged([asdict(record)] * 5)


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_every_method_trains_and_serial_and_vectorised_agree(name):
    serial, vectorised = (start(EVERY_METHOD[name], engine=engine, rounds=3) for engine in ("serial", "vectorised"))
    assert [record.epsilon for record in serial] == [record.epsilon for record in vectorised]
    torch.testing.assert_close(serial.params, vectorised.params, rtol=1e-8, atol=1e-9)


def test_processes_give_the_same_bits():
    options = {"workers": 2, "dp_clip_quantile": 0.3}
    runs = [start(fedmim.FedMIM(), engine=engine, **options) for engine in ("serial", "processes")]
    for run in runs:
        list(run)
    assert torch.equal(runs[0].params, runs[1].params)
    assert runs[0].server.clip == runs[1].server.clip


def test_the_clip_norm_finds_the_quantile():
    distances, clip = [k / 100 for k in range(1, 101)], 20.0
    for _ in range(400):
        clip = next_clip(clip, sum(d <= clip for d in distances) / 100, 0.3)
    assert clip == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(("z", "planned"), [(1.0, 1000), (1.0, 10), (5.0, 10), (1e-3, 10)])
def test_both_parts_of_the_noise_together_are_worth_the_noise_multiplier(z, planned):
    """For a replaced client: the sum changes by 2 in units of C, the count by 1; Gaussians add up as 1 / sigma^2."""
    shares = NoiseShares.of(z, planned, adaptive=True)
    together = (shares.sum / 2) ** -2 + shares.count**-2
    assert together == pytest.approx((z / 2) ** -2)
    assert NoiseShares.of(z, planned, adaptive=False) == NoiseShares(z, 0.0)


@pytest.mark.parametrize("secret", [None, 2**200 + 1])
def test_a_resumed_run_gives_the_same_bits(tmp_path, secret):
    options = {"algorithm": fedmim.Scaffold(), "dp_clip_quantile": 0.4, "engine": "serial", "noise_seed": secret}
    whole = start(**options)
    history = list(whole)
    run = start(**options, folder=tmp_path)
    next(run), next(run)
    run.save()
    again = start(**options | {"noise_seed": None}, folder=tmp_path, resume=True)  # the checkpoint has the secret
    assert again.server.clip == run.server.clip != PRIVATE["dp_clip"]
    assert [replace(record, seconds=0) for record in again] == [replace(record, seconds=0) for record in history[2:]]
    assert torch.equal(again.params, whole.params)
    assert again.server.clip == whole.server.clip


def test_the_secret_seed_determines_noise_and_sampling_and_cannot_change(tmp_path):
    runs = [start(noise_seed=seed) for seed in (None, 0, 2**128 + 5, 2**128 + 6)]
    samples = [[record.clients for record in run] for run in runs]
    assert torch.equal(runs[0].params, runs[1].params)  # the seed of the settings is 0
    assert len({tuple(each) for each in samples}) == 3
    assert not torch.equal(runs[2].params, runs[3].params)
    run = start(noise_seed=2**128 + 5, folder=tmp_path)
    next(run)
    run.save()
    with pytest.raises(UserError, match=r"the run there has a different noise_seed$"):
        start(noise_seed=7, folder=tmp_path, resume=True)


REFUSED = {
    r"^dp_clip: must be set": {"dp_clip": None},
    r"^local_steps: must be set": {"local_steps": None},
    r"^weighting: must be equal": {"weighting": "samples"},
    r"^aggregation: must be mean": {"aggregation": "median"},
    r"^max_distance_ratio: must be none": {"max_distance_ratio": 2.0},
    r"^min_replies: must be 1": {"min_replies": 2},
    r"^dp_clip: has no effect without dp_noise": {"dp_noise": None},
    r"^dp_clip_quantile: has no effect without dp_noise": {"dp_noise": None, "dp_clip": None, "dp_clip_quantile": 0.5},
}


@pytest.mark.parametrize("message", REFUSED)
def test_settings_that_would_void_the_guarantee_are_rejected(message):
    with pytest.raises(UserError, match=message):
        private(**REFUSED[message])


def test_a_model_with_buffers_is_rejected():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    with pytest.raises(UserError, match=r"^model: has buffers"):
        start(task=classification(model=model))


def test_a_delta_that_permits_to_publish_a_client_is_rejected():
    with pytest.raises(UserError, match=r"^dp_delta: must be below 1/N = 0.143 with 7 clients"):
        start(dp_delta=0.2)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UserError, match=r"^dp_noise: requires dp-accounting: pip install 'fedmim\[privacy\]'$"):
        start()
    fedmim.simulate(fedmim.FedAvg(), classification(), *busy(rounds=1))


def test_the_number_of_clients_cannot_change(tmp_path):
    run = start(folder=tmp_path)
    next(run)
    run.save()
    again = start(folder=tmp_path, resume=True)
    again._total_weight = 8
    with pytest.raises(UserError, match=r"^clients: must stay 7 in a run with dp_noise, got 8"):
        next(again)


def test_an_absolute_bound_and_privacy_go_together(released):
    run = start(max_distance=1e-9)
    assert next(run).refused == 4
    assert released[0].means["params"].isfinite().all()


def test_the_accountant_is_asked_for_the_planned_number_of_clients(monkeypatch):
    asked = []
    monkeypatch.setattr(privacy, "epsilon", lambda *facts: asked.append(facts) or 1.0)
    list(start(rounds=2))
    assert asked == [(0.7, 4, 7, 1, 1e-3), (0.7, 4, 7, 2, 1e-3)]
