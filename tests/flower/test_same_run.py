"""A Flower run is the simulator's run: the same bits after every round, and the same bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from every_method import EVERY_METHOD
from flwr.app import ArrayRecord
from loopback import federation
from problems import BUSY, SIZES, classification, network
from torch import nn

import fedmim
from fedmim.flower import FlowerStrategy, client_app


def batch_norm_network(dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def run_flower(algorithm, task, settings, folder, fault=None, **options):
    """The strategy after its run, the global models after each round, and the grid."""
    app = client_app(lambda partition, context: task, algorithm, settings)
    grid = federation(app, len(task.clients), folder, fault)
    strategy = FlowerStrategy(algorithm, settings, task.model, clients=len(task.clients), wait=0.0, **options)
    models = []
    strategy.start(grid, evaluate_fn=lambda round, arrays: models.append(arrays.to_torch_state_dict()))
    return strategy, models[1:], grid


def run_simulator(algorithm, task, settings):
    run = fedmim.rounds(algorithm, task, replace(settings, engine="serial"))
    records, models = [], []
    for record in run:
        records.append(record)
        models.append(run.model.state_dict())
    return records, models


def assert_same(models, expected):
    assert len(models) == len(expected) > 0
    for ours, theirs in zip(models, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.parametrize("name", EVERY_METHOD)
@pytest.mark.parametrize("weighting", ["equal", "samples"])
def test_every_method_gives_the_simulators_bits_records_and_bytes(name, weighting, tmp_path):
    algorithm, settings = EVERY_METHOD[name], fedmim.Settings(**BUSY, weighting=weighting)
    task = classification(dtype=torch.float32)
    strategy, models, _ = run_flower(algorithm, task, settings, tmp_path)
    records, expected = run_simulator(algorithm, task, settings)
    assert_same(models, expected)
    for ours, theirs in zip(strategy.history, records, strict=True):
        assert replace(ours, seconds=0) == replace(theirs, seconds=0, test_accuracy=None, test_loss=None)
