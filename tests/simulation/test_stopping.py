"""Early stopping: at a target accuracy or on a plateau, by hand and in the loop."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from problems import busy, classification

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.stopping import stop_reason


def reason(accuracies, rounds=100, **settings):
    records = [{"round": t, "test_accuracy": value} for t, value in enumerate(accuracies, start=1)]
    return stop_reason(fedmim.Settings(rounds=rounds, **settings), records)


@pytest.mark.parametrize(
    ("accuracies", "settings", "expected"),
    [
        ([0.1, 0.5, 0.9], {}, None),
        ([0.1, 0.5, 0.89], {"until": 0.9}, None),
        ([0.1, 0.9, 0.2, 0.95], {"until": 0.9}, "reached 0.9 in round 2"),
        ([None, None, 0.95], {"until": 0.9}, "reached 0.9 in round 3"),
        ([0.1, 0.9], {"until": 0.9, "rounds": 2}, "reached 0.9 in round 2"),
        ([0.5, 0.4], {"patience": 2}, None),
        ([0.5, 0.4, 0.5], {"patience": 2}, "stopped in round 3, no improvement since round 1"),  # equal is not better
        ([0.5, 0.4, 0.5], {"patience": 2, "rounds": 3}, None),  # all rounds are done
        ([0.5, 0.4, 0.6, 0.5], {"patience": 2}, None),
        ([0.5, 0.4, 0.3, 0.9], {"patience": 2}, "stopped in round 3, no improvement since round 1"),
        ([None, 0.5, None, None, None, 0.4], {"patience": 2}, "stopped in round 6, no improvement since round 2"),
        ([0.5, 0.4, 0.95], {"patience": 2, "until": 0.9}, "reached 0.9 in round 3"),
        ([0.0, 0.0], {"patience": 1}, "stopped in round 2, no improvement since round 1"),
        ([0.5, math.nan, math.nan, 0.4], {"patience": 2}, "stopped in round 4, no improvement since round 1"),
        ([0.5, None, None, 0.4], {"patience": 2}, "stopped in round 4, no improvement since round 1"),  # as in a file
        ([math.inf, 0.5], {"until": 0.9}, None),
    ],
)
def test_the_first_evaluation_that_meets_a_condition_decides(accuracies, settings, expected):
    assert reason(accuracies, **settings) == expected


def history(algorithm=None, **overrides):
    return fedmim.simulate(algorithm or fedmim.FedAvg(), classification(), *busy(rounds=12, **overrides))


def test_a_run_stops_in_the_round_that_reaches_the_target_with_the_model_of_that_round():
    whole = history()
    accuracies = [record.test_accuracy for record in whole.history]
    target = sorted(set(accuracies))[1]
    first = next(t for t, value in enumerate(accuracies, start=1) if value >= target)
    assert 1 < first < 12
    stopped = history(until=target)
    assert [replace(each, seconds=0) for each in stopped.history] == [
        replace(each, seconds=0) for each in whole.history[:first]
    ]
    run = fedmim.rounds(fedmim.FedAvg(), classification(), *busy(rounds=first))
    for _ in run:
        pass
    assert torch.equal(stopped.params, run.params)


def test_the_iterator_of_rounds_stops_too():
    run = fedmim.rounds(fedmim.FedAvg(), classification(), *busy(rounds=50, lr=1e-9, patience=3))
    assert [record.round for record in run] == [1, 2, 3, 4]  # nothing is learned after the first
    assert run.stopping.reason == "stopped in round 4, no improvement since round 1"
    assert next(run, None) is None


@pytest.mark.parametrize("setting", [{"until": 0.9}, {"patience": 3}])
def test_a_task_without_a_metric_is_rejected_before_the_first_round(setting):
    pair = torch.zeros(4, 3), torch.zeros(4, 2)
    task = fedmim.Task(torch.nn.Linear(3, 2), [pair], pair, loss=torch.nn.functional.mse_loss)
    with pytest.raises(UserError, match=rf"^{next(iter(setting))}: this task has no accuracy"):
        fedmim.rounds(fedmim.FedAvg(), task, fedmim.Settings(**setting))
