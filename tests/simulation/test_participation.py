"""System heterogeneity: availability, unequal work, speed, deadlines and dropouts follow their distributions.

Frequencies of n independent draws are within five standard deviations, sqrt(p (1 - p) / n), of their probability.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median, pstdev

import naive_methods as naive
import pytest
import torch
from problems import SIZES, busy, classification

import fedmim
from fedmim.errors import UserError
from fedmim.simulation import participation
from fedmim.simulation.participation import asked_clients, available_clients, own_steps, speed, turnout, usual_steps
from fedmim.simulation.randomness import client_generator, minibatches, sample_clients

SETTINGS = busy(participation=1.0)[0]
ALL = dict(enumerate(SIZES))
USUAL = {0: 2, 1: 4, 2: 4, 3: 8, 4: 2, 5: 4, 6: 6}  # 2 epochs of batches of 4


def near(count: int, draws: int, probability: float) -> bool:
    return abs(count / draws - probability) <= 5 * math.sqrt(probability * (1 - probability) / draws)


def test_by_default_every_client_does_the_usual_work_and_replies():
    assert asked_clients(SETTINGS, 5, 3, 100) == list(range(100))
    few = replace(SETTINGS, participation=0.1)
    assert asked_clients(few, 5, 3, 100) == sample_clients(5, 3, 100, 10)
    came = turnout(SETTINGS, 3, ALL, 1.0)
    assert came.steps == USUAL
    assert list(came.steps) == [3, 6, 1, 5, 2, 0, 4]  # most steps, then most samples, first
    assert (came.missing, came.time) == (0, None)


@pytest.mark.parametrize(("unit", "batches"), [("local_epochs", 2), ("local_steps", 1)])
def test_work_from_0_to_1_is_uniform_over_1_to_the_usual_number(unit, batches):
    settings = fedmim.Settings(**{unit: 5}, batch_size=4, work="uniform:0,1")
    drawn = [own_steps(settings, t, client, samples=8) for t in range(50) for client in range(100)]
    assert {steps // batches for steps in drawn} == {1, 2, 3, 4, 5}
    assert all(near(drawn.count(steps * batches), 5000, 0.2) for steps in (1, 2, 3, 4, 5))


def test_with_a_part_the_other_clients_do_the_usual_work():
    settings = fedmim.Settings(local_steps=1000, work="uniform:1.5,2.5,0.9")
    drawn = [own_steps(settings, t, client, samples=8) for t in range(50) for client in range(100)]
    assert near(drawn.count(1000), 5000, 0.1)
    rest = [steps for steps in drawn if steps != 1000]
    assert min(rest) >= 1500
    assert max(rest) <= 2500
    assert abs(fmean(rest) - 2000.5) < 5 * 1000 / math.sqrt(12 * len(rest))
    assert settings.local_work.mean == pytest.approx(0.9 * 2 + 0.1)
    assert settings.local_work.most == 2.5


def test_speeds_are_lognormal_with_median_1_and_belong_to_the_client():
    logs = [math.log(speed(replace(SETTINGS, speed_spread=0.5), client)) for client in range(4000)]
    assert abs(median(logs)) < 5 * 0.5 * math.sqrt(math.pi / 2 / 4000)
    assert abs(pstdev(logs) - 0.5) < 5 * 0.5 / math.sqrt(2 * 4000)
    assert logs[7] == math.log(speed(replace(SETTINGS, speed_spread=0.5, local_steps=9), 7))


def test_each_client_is_available_in_one_window_of_the_day():
    settings = replace(SETTINGS, availability=0.3, rounds_per_day=20)
    days = [[client in available_clients(settings, t, 500) for t in range(60)] for client in range(500)]
    assert all(sum(day[:20]) == 6 for day in days)  # 0.3 * 20
    assert all(day[:20] == day[20:40] == day[40:] for day in days)
    assert all(sum(a != b for a, b in pairwise([*day[:20], day[0]])) == 2 for day in days)
    assert all(near(sum(day[t] for day in days), 500, 0.3) for t in range(20))
    assert available_clients(settings, 5, 100) == [i for i in available_clients(settings, 5, 500) if i < 100]


def test_only_the_available_are_asked_and_all_of_them_if_they_are_few():
    settings = replace(SETTINGS, availability=0.3, participation=0.2)
    sets = [(asked_clients(settings, 0, t, 100), available_clients(settings, t, 100)) for t in range(24)]
    assert all(set(asked) <= set(free) and len(asked) == min(20, len(free)) for asked, free in sets)
    assert all(asked == sorted(asked) for asked, _ in sets)
    many = replace(settings, participation=1.0)
    assert all(asked_clients(many, 0, t, 100) == free for t, (_, free) in enumerate(sets))


def test_the_deadline_is_in_units_of_the_median_client():
    timed = replace(SETTINGS, deadline=1.0)
    assert usual_steps(timed, classification()) == 4.0
    assert usual_steps(replace(timed, local_steps=7), classification()) == 7.0
    dropped = turnout(timed, 0, ALL, 4.0)
    assert dropped.steps == {client: steps for client, steps in USUAL.items() if steps <= 4}
    assert (dropped.missing, dropped.time) == (2, 1.0)
    partial = turnout(replace(timed, late="partial"), 0, ALL, 4.0)
    assert partial.steps == {client: min(steps, 4) for client, steps in USUAL.items()}
    assert (partial.missing, partial.time) == (0, 1.0)
    assert set(turnout(replace(timed, late="partial", deadline=0.3), 0, ALL, 4.0).steps.values()) == {1}
    assert turnout(replace(timed, late="partial", deadline=0.2), 0, ALL, 4.0).missing == 7  # not even one step
    assert turnout(replace(timed, deadline=0.29, local_steps=29), 0, ALL, 100.0).missing == 0  # 0.29 * 100 < 29
    early = turnout(replace(timed, deadline=5.0), 0, ALL, 4.0)
    assert (early.missing, early.time) == (0, 2.0)  # the longest has 8 steps


def test_a_fast_client_does_more_until_the_deadline(monkeypatch):
    monkeypatch.setattr(participation, "speed", lambda settings, client: {3: 4.0, 6: 0.5}.get(client, 1.0))
    timed = replace(SETTINGS, deadline=1.0, late="partial")
    came = turnout(timed, 0, {3: 13, 6: 10}, 4.0)
    assert came.steps == {3: 8, 6: 2}
    waiting = turnout(replace(SETTINGS, speed_spread=0.1), 0, {3: 13, 6: 10}, 4.0)
    assert waiting.time == 3.0  # of client 6: 6 / (0.5 * 4)


def test_dropouts_have_their_probability():
    settings = replace(SETTINGS, dropout=0.2)
    assert near(sum(turnout(settings, t, ALL, 1.0).missing for t in range(1000)), 7000, 0.2)


class UnevenFederation(naive.Federation):
    """The transcriptions, with the clients that reply and their K."""

    def came(self, t):
        asked = asked_clients(self.settings, self.settings.seed, t, self.population)
        return turnout(self.settings, t, {i: len(self.task.clients[i][0]) for i in asked}, 4.0).steps

    def active(self, t):
        return list(self.came(t))

    def batches(self, t, i):
        x, y = self.task.clients[i]
        own = replace(self.settings, work=None, local_steps=self.came(t)[i])
        generator = client_generator(self.settings.seed, t, i)
        return [(x[index], y[index]) for index in minibatches(len(x), own, generator)]


CASES = {
    "work": {"work": "uniform:0,2"},
    "dropouts": {"dropout": 0.4},
    "deadline": {"speed_spread": 0.8, "deadline": 0.7, "late": "partial"},
    "late are dropped": {"speed_spread": 0.8, "deadline": 1.0},
    "availability": {"availability": 0.6},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_fedavg_averages_the_clients_that_reply_after_their_own_steps(engine, case):
    task, settings = classification(), busy(rounds=4, participation=1.0, **CASES[case])[0]
    fed = UnevenFederation(task, settings)
    x = fed.start()
    for t in range(4):
        x = fed.mean(naive.local_sgd(fed, t, x, lambda i, w, batch: fed.gradient(w, batch)))
    result = fedmim.simulate(fedmim.FedAvg(), task, settings, fedmim.Execution(engine=engine))
    torch.testing.assert_close(result.params, x, rtol=1e-10, atol=1e-12)
    plain = fedmim.simulate(fedmim.FedAvg(), task, busy(rounds=4, participation=1.0)[0])
    assert (result.params - plain.params).abs().max() > 1e-4


def test_a_client_that_drops_out_costs_bytes_down_only_and_keeps_its_state():
    task, (settings, execution) = classification(), busy(rounds=3, participation=1.0, dropout=0.5)
    run = fedmim.rounds(fedmim.Scaffold(), task, settings, execution)
    vector, visited = 8 * len(run.params), set()
    for t, record in enumerate(run):
        came = turnout(settings, t, ALL, 1.0)
        visited |= set(came.steps)
        assert record.clients == tuple(range(7))
        assert record.failed == came.missing
        assert record.bytes_up == len(came.steps) * vector
        assert record.steps_mean == sum(came.steps.values()) / len(came.steps)
        assert record.bytes_down == 7 * 2 * vector
        for client in range(7):
            assert run.server.clients.is_new(client) == (client not in visited)


def test_a_round_without_a_reply_says_so_and_changes_nothing():
    task, (settings, execution) = classification(), busy(rounds=1, deadline=0.01)
    run = fedmim.rounds(fedmim.FedAvg(), task, settings, execution)
    before = run.params.clone()
    with pytest.warns(UserWarning, match="round 1: no client replied; the model is unchanged"):
        record = next(run)
    assert torch.equal(run.params, before)
    assert (record.failed, record.bytes_up, record.train_loss, record.simulated_time) == (4, 0, None, 0.01)
    assert record.steps_mean is None


def test_records_have_the_mean_number_of_local_steps_where_clients_do_not_do_the_usual_work():
    """uniform:2,2 doubles the three steps of every client."""
    task, (settings, execution) = classification(), busy(rounds=1, local_steps=3)
    (usual,) = fedmim.simulate(fedmim.FedAvg(), task, settings, execution, progress=False).history
    assert usual.steps_mean is None
    (double,) = fedmim.simulate(
        fedmim.FedAvg(), task, replace(settings, work="uniform:2,2"), execution, progress=False
    ).history
    assert double.steps_mean == 6.0


@pytest.mark.parametrize("engine", ["serial", "vectorised", "processes"])
def test_a_round_without_an_available_client_says_so_and_changes_nothing(engine):
    settings, execution = busy(rounds=24, availability=0.05, engine=engine)
    empty = [t for t in range(24) if not available_clients(settings, t, 7)]
    assert empty
    run = fedmim.rounds(fedmim.FedAvg(), classification(), settings, execution)
    for t in range(24):
        before = run.params.clone()
        if t in empty:
            with pytest.warns(UserWarning, match=f"round {t + 1}: no client is available; the model is unchanged"):
                record = next(run)
            assert record.clients == ()
            assert (record.bytes_up, record.bytes_down) == (0, 0)
        else:
            record = next(run)
        assert torch.equal(run.params, before) == (t in empty)


def test_a_resumed_run_has_the_same_bits(tmp_path):
    changes = {"work": "uniform:0,2", "dropout": 0.2, "speed_spread": 0.5, "deadline": 1.0, "availability": 0.9}
    settings, execution = busy(rounds=4, participation=1.0, **changes)
    whole = fedmim.rounds(fedmim.Scaffold(), classification(), settings, execution)
    records = [replace(record, seconds=0.0) for record in whole]
    first = fedmim.rounds(fedmim.Scaffold(), classification(), settings, execution, folder=tmp_path)
    next(first), next(first)
    first.save()
    second = fedmim.rounds(fedmim.Scaffold(), classification(), settings, execution, folder=tmp_path, resume=True)
    assert [replace(record, seconds=0.0) for record in second] == records[2:]
    assert torch.equal(second.params, whole.params)
    changed = replace(settings, dropout=0.3)
    with pytest.raises(UserError, match="different dropout"):
        fedmim.rounds(fedmim.Scaffold(), classification(), changed, folder=tmp_path, resume=True)


def test_a_limit_on_distance_measures_each_client_from_the_point_of_its_own_steps():
    """With zero gradients everywhere, weight decay alone moves the clients, and nobody is away from its point."""
    task = replace(classification(), loss=lambda outputs, targets: 0.0 * outputs.sum())
    settings = busy(rounds=1, participation=1.0, local_steps=8, work="uniform:0,2", max_distance=1e-9)[0]
    (record,) = fedmim.simulate(fedmim.FedAvg(), task, settings).history
    assert record.refused == 0


@pytest.mark.parametrize("name", ["work", "deadline", "availability"])
def test_what_breaks_the_accountant_is_rejected_with_differential_privacy(name):
    value = {"work": "uniform:0,1", "deadline": 1.0, "availability": 0.5}[name]
    with pytest.raises(UserError, match=f"^{name}: must be (none|1.0) with dp_noise"):
        fedmim.Settings(local_steps=3, dp_noise=1.0, dp_clip=1.0, **{name: value})
    fedmim.Settings(local_steps=3, dp_noise=1.0, dp_clip=1.0, dropout=0.5)
