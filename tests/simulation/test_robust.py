"""Robust aggregation against naive implementations, and what is left of a model when some clients attack it."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from attackers import ATTACKS, attack, choose_attackers
from every_method import EVERY_METHOD
from problems import busy, classification
from scipy.stats import trim_mean
from torch import nn

import fedmim
from fedmim import memory
from fedmim.errors import UserError
from fedmim.simulation import public_point
from fedmim.simulation.checkpoint import CHECKPOINT_FILE, Checkpoint
from fedmim.simulation.robust import cut, largest_distance, trimmed_mean

SIZES = (3, 8, 5, 13, 6, 10, 7)


def spied(run):
    """The run, and the uploads of its last round as the server receives them, by client."""
    honest, uploads = run._execute, {}

    def execute(algorithm, model, work):
        uploads.clear()
        for reply in honest(algorithm, model, work):
            received = algorithm.receive(reply.upload, work.down, work.lr, reply.steps)
            uploads[reply.client] = {name: vector.clone() for name, vector in received.items()}
            yield reply

    run._execute = execute
    return run, uploads


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_trimmed_mean_and_the_median_are_those_of_numpy_and_scipy(count):
    rows = torch.randn(count, 70_000, generator=torch.Generator().manual_seed(count))  # more than one piece
    uploads = [{"params": row, "square": row[:1]} for row in rows]
    for trim in (0.1, 0.2, 0.4):
        settings = fedmim.Settings(aggregation="trimmed-mean", trim=trim)
        found = trimmed_mean(uploads, cut(settings, count))
        expected = trim_mean(rows.double().numpy(), trim, axis=0)
        assert np.allclose(found["params"], expected, rtol=1e-6, atol=1e-7)
        assert found["square"] == found["params"][:1]
    median = trimmed_mean(uploads, cut(fedmim.Settings(aggregation="median"), count))["params"]
    assert np.allclose(median, np.median(rows.numpy(), axis=0), rtol=1e-6, atol=1e-7)
    assert median.dtype == torch.float32


def test_the_number_of_dropped_values_is_the_fraction_rounded_down():
    drops = {(0.2, 4): 0, (0.2, 5): 1, (0.29, 100): 29, (0.3, 10): 3, (0.49, 10): 4, (0.1, 9): 0}
    for (trim, replies), expected in drops.items():
        assert cut(fedmim.Settings(aggregation="trimmed-mean", trim=trim), replies) == expected


@pytest.mark.parametrize("engine", ["serial", "vectorised", "processes"])
@pytest.mark.parametrize("rule", ["trimmed-mean", "median"])
def test_the_next_model_is_the_rule_over_the_uploads_of_the_round(rule, engine):
    options = {"participation": 1.0, "aggregation": rule, "trim": 0.3, "engine": engine, "workers": 2}
    run, uploads = spied(fedmim.rounds(fedmim.FedAvg(), classification(SIZES), *busy(**options)))
    for _ in range(3):
        record = next(run)
        rows = torch.stack([upload["params"] for upload in uploads.values()]).numpy()
        expected = np.median(rows, axis=0) if rule == "median" else np.sort(rows, axis=0)[2:-2].mean(axis=0)
        assert np.allclose(run.params, expected, rtol=1e-12, atol=1e-14)
        drift = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean()
        assert record.consistency == pytest.approx(drift, rel=1e-9)


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_every_method_trains_with_every_rule_and_without_outliers_as_with_the_mean(name):
    """Of equal clients each rule gives the same model."""
    task = classification((6,) * 5)
    task = replace(task, clients=[task.clients[0]] * 5)
    protocol = {"participation": 1.0, "batch_size": None, "rounds": 3}
    mean = fedmim.simulate(EVERY_METHOD[name], task, *busy(**protocol))
    for options in (
        {"aggregation": "trimmed-mean"},
        {"aggregation": "median"},
        {"max_distance_ratio": 1.5, "max_distance": 1e6},
    ):
        other = fedmim.simulate(EVERY_METHOD[name], task, *busy(**protocol, **options))
        torch.testing.assert_close(other.params, mean.params, rtol=1e-9, atol=1e-11)
        assert not any(record.refused for record in other.history)


def test_batch_norm_statistics_are_aggregated_by_the_same_rule():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    task = classification((4, 4, 4, 4, 4), model=model)
    task.clients[2] = (task.clients[2][0] * 1e6, task.clients[2][1])
    protocol = busy(participation=1.0, aggregation="median", rounds=1, engine="serial")
    outcome = fedmim.simulate(fedmim.FedAvg(), task, *protocol)
    assert outcome.model[1].running_mean.abs().max() < 100
    assert int(outcome.model[1].num_batches_tracked) == 2


def first_uploads():
    """The uploads of the first round of FedAvg, and the distance of each from the decayed model."""
    run, uploads = spied(fedmim.rounds(fedmim.FedAvg(), classification(SIZES), *busy(participation=1.0)))
    x, settings = run.params.clone(), run.settings
    next(run)
    far = {}
    for client, upload in uploads.items():
        factor = (1 - settings.lr * settings.weight_decay) ** settings.steps(SIZES[client])
        far[client] = (upload["params"] - factor * x).norm().item()
    return far, uploads


def test_uploads_beyond_the_absolute_bound_are_left_out_and_counted():
    far, uploads = first_uploads()
    bound = sorted(far.values())[3] * (1 + 1e-9)
    run = fedmim.rounds(fedmim.FedAvg(), classification(SIZES), *busy(participation=1.0, max_distance=bound))
    record = next(run)
    within = [uploads[client]["params"] for client, distance in far.items() if distance <= bound]
    assert (len(within), record.refused) == (4, 3)
    torch.testing.assert_close(run.params, torch.stack(within).mean(0), rtol=1e-12, atol=1e-14)


def test_uploads_beyond_a_multiple_of_the_median_distance_are_left_out_and_counted():
    far, uploads = first_uploads()
    ratio = 1.05
    run = fedmim.rounds(fedmim.FedAvg(), classification(SIZES), *busy(participation=1.0, max_distance_ratio=ratio))
    record = next(run)
    bound = ratio * float(np.median([*far.values()]))  # of seven
    within = [uploads[client]["params"] for client, distance in far.items() if distance <= bound]
    assert 4 <= len(within) < 7
    assert record.refused == 7 - len(within)
    torch.testing.assert_close(run.params, torch.stack(within).mean(0), rtol=1e-12, atol=1e-14)


def test_the_median_distance_holds_if_half_of_the_uploads_are_infinitely_far_away():
    assert largest_distance([1.0, 2.0, math.inf, math.inf], 1.5) == 3.0
    assert largest_distance([2.0, 1.0, 3.0], 2.0) == 4.0
    assert largest_distance([math.inf] * 3, 2.0) < math.inf  # then all are rejected
    assert largest_distance([0.0, 0.0, 1.0], 2.0) == 0.0


def test_a_client_rejected_at_the_end_of_the_round_keeps_its_old_state():
    task = classification(SIZES)
    run = fedmim.rounds(fedmim.Scaffold(), task, *busy(participation=1.0, max_distance_ratio=50.0))
    next(run)
    old = run.server.clients.get(2)["control"].clone()
    attack(run, frozenset({2}), "scaled by 1e30")
    assert next(run).refused == 1
    assert torch.equal(run.server.clients.get(2)["control"], old)


@pytest.mark.parametrize("rule", [{}, {"max_distance_ratio": 1e3}, {"aggregation": "median"}], ids=str)
@pytest.mark.parametrize("name", ["scaffold", "fedmim", "own: state on both sides"])
def test_a_round_with_too_few_accepted_uploads_changes_nothing_but_its_number(name, rule):
    task = classification((5, 9, 4))
    protocol = busy(participation=1.0, min_replies=3, engine="serial", **rule)
    run = fedmim.rounds(EVERY_METHOD[name], task, *protocol)
    next(run)
    before, places = run.state, dict(run.server.clients.places)
    healthy = task.clients[1]
    task.clients[1] = (torch.full_like(healthy[0], torch.nan), healthy[1])
    with pytest.warns(UserWarning, match=r"round 2: only 2 of 3 uploads were accepted, fewer than min_replies"):
        record = next(run)
    assert record.refused == 1
    assert run.state.round == 2
    assert torch.equal(run.state.params, before.params)
    assert all(torch.equal(run.state.slots[slot], vector) for slot, vector in before.slots.items())
    assert run.server.clients.places == places
    task.clients[1] = healthy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(run)
    assert not torch.equal(run.state.params, before.params)


def test_settings_that_no_run_can_fulfil_are_rejected_by_name():
    with pytest.raises(UserError, match=r'^aggregation: median has no weights; use weighting "equal"'):
        fedmim.Settings(aggregation="median", weighting="samples")
    with pytest.raises(UserError, match=r"^min_replies: must be at most 4, the clients of a round, got 5"):
        fedmim.rounds(fedmim.FedAvg(), classification(), *busy(min_replies=5))


def test_more_uploads_than_fit_in_memory_are_rejected_before_the_first_round(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 100)
    for name, value in (("max_distance_ratio", 2.0), ("aggregation", "median")):
        with pytest.raises(UserError, match=f"^{name}: holding 4 uploads needs about .* lower participation"):
            fedmim.rounds(fedmim.FedAvg(), classification(), *busy(**{name: value}))


def test_without_these_settings_no_public_point_is_computed(monkeypatch):
    monkeypatch.setattr(public_point, "idle_upload", None)
    monkeypatch.setattr(public_point, "distance", None)
    fedmim.simulate(fedmim.FedMIM(), classification(), *busy())


@pytest.mark.parametrize("rule", [{"max_distance_ratio": 1.2}, {"aggregation": "trimmed-mean"}], ids=str)
def test_a_resumed_run_gives_the_same_bits(tmp_path, rule):
    protocol = busy(engine="serial", **rule)
    whole = fedmim.simulate(fedmim.Scaffold(), classification(), *protocol)
    run = fedmim.rounds(fedmim.Scaffold(), classification(), *protocol, folder=tmp_path)
    next(run), next(run)
    run.save()
    again = fedmim.rounds(fedmim.Scaffold(), classification(), *protocol, folder=tmp_path, resume=True)
    assert [replace(record, seconds=0.0) for record in again] == [
        replace(record, seconds=0.0) for record in whole.history[2:]
    ]
    assert torch.equal(again.params, whole.params)
    with pytest.raises(UserError, match=f"has a different {next(iter(rule))}"):
        fedmim.rounds(fedmim.Scaffold(), classification(), *busy(), folder=tmp_path, resume=True)


def test_a_checkpoint_from_before_these_settings_is_resumed_with_their_defaults(tmp_path):
    run = fedmim.rounds(fedmim.FedAvg(), classification(), *busy(), folder=tmp_path)
    next(run)
    run.save()
    saved = Checkpoint.load(tmp_path / CHECKPOINT_FILE)
    kept = {k: v for k, v in saved.settings.items() if k not in ("aggregation", "trim", "max_distance", "min_replies")}
    replace(saved, settings=kept).save(tmp_path)
    fedmim.rounds(fedmim.FedAvg(), classification(), *busy(), folder=tmp_path, resume=True)
    with pytest.raises(UserError, match="has a different min_replies"):
        fedmim.rounds(fedmim.FedAvg(), classification(), *busy(min_replies=2), folder=tmp_path, resume=True)


DEFENCES = {
    "distance": {"max_distance_ratio": 2.0},
    "trimmed mean": {"aggregation": "trimmed-mean", "trim": 0.25},
    "median": {"aggregation": "median"},
}
PROTOCOL = {"participation": 1.0, "rounds": 25, "batch_size": None, "lr_decay": 1.0, "weight_decay": 0.0, "lr": 0.5}


def learnable():
    """Twenty clients with samples of one problem: the class is where the features point to."""
    generator = torch.Generator().manual_seed(3)
    centres = 2 * torch.randn(3, 4, generator=generator)

    def draw(n):
        y = torch.randint(3, (n,), generator=generator)
        return (centres[y] + torch.randn(n, 4, generator=generator)).double(), y

    base = classification((1,))
    return fedmim.Task(model=base.model, clients=[draw(12) for _ in range(20)], test=draw(500))


@pytest.mark.parametrize("part", [0.1, 0.2])
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("algorithm", [fedmim.FedAvg(), fedmim.FedMIM(), fedmim.Leap(fedmim.FedAvg())], ids=repr)
def test_with_a_defence_the_model_stays_usable(algorithm, name, part):
    task = learnable()
    lr = 0.5 if isinstance(algorithm, fedmim.FedAvg) else 2.0
    honest = fedmim.simulate(algorithm, task, *busy(**PROTOCOL | {"lr": lr})).history[-1].test_accuracy
    assert honest > 0.9
    for options in DEFENCES.values():
        run = fedmim.rounds(algorithm, task, *busy(**PROTOCOL | options | {"lr": lr}))
        attack(run, choose_attackers(20, part), name)
        assert list(run)[-1].test_accuracy > honest - 0.05, options


@pytest.mark.parametrize("name", ["scaled by 1e30", "noise"])
def test_the_plain_mean_does_not_stand_these_attacks(name):
    run = fedmim.rounds(fedmim.FedAvg(), learnable(), *busy(**PROTOCOL))
    attack(run, choose_attackers(20, 0.1), name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (list(run)[-1].test_accuracy or 0.0) < 0.8


def test_an_absolute_bound_holds_against_any_number_of_attackers():
    run = fedmim.rounds(fedmim.FedAvg(), learnable(), *busy(**PROTOCOL, max_distance=20.0))
    attack(run, choose_attackers(20, 0.6), "scaled by 1e30")
    history = list(run)
    assert {record.refused for record in history} == {12}
    assert history[-1].test_accuracy > 0.85
