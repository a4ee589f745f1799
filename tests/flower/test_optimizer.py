"""FlowerOptimizer: a Flower app with its own training function equals the simulator's run."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch
from every_method import EVERY_METHOD
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from loopback import federation, run_simulator
from problems import BUSY, SIZES, classification
from torch import nn
from torch.nn.functional import cross_entropy

import fedmim
from fedmim.errors import UserError
from fedmim.flower import ClientApp, FlowerOptimizer, FlowerStrategy
from fedmim.models import FlatModel
from fedmim.simulation.randomness import client_generator, minibatches
from fedmim.simulation.wire import Wire

N = len(SIZES)


def own_app(algorithm, task, settings):
    """A user's app: a plain loop over the simulator's minibatches, so that the runs can be compared."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        config = message.content["config"]
        client, round = config["fedmim-client"], config["server-round"] - 1
        x, y = task.clients[client]
        batches = list(minibatches(len(x), settings, client_generator(settings.seed, round, client)))
        model, losses = copy.deepcopy(task.model), []

        def over_all_data():
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()

        optimizer = FlowerOptimizer(model, algorithm, steps=len(batches), full_gradient=over_all_data)
        for index in batches:

            def closure(index=index):
                optimizer.zero_grad()
                loss = cross_entropy(model(x[index]), y[index])
                loss.backward()
                return loss

            losses.append(optimizer.step(closure))
        metrics = {"num-examples": len(x), "train_loss": torch.stack(losses).mean().item(), "client": float(client)}
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=message)

    return app


def run(algorithm, task, settings, folder, fault=None):
    grid = federation(own_app(algorithm, task, settings), N, folder, fault)
    strategy = FlowerStrategy(algorithm, task.model, settings, clients=N, wait=0.0)
    return strategy, strategy.start(grid).arrays.to_torch_state_dict()


def assert_same_bytes(history, records, algorithm, task):
    """Except for clients in their first round, whose number of steps is not known yet: they receive the broadcast."""
    wire, heard = Wire.of(algorithm, FlatModel(task.model, task.loss).params), set()
    more = 8 * (sum(wire.broadcast.values()) - sum(wire.down.values()))
    for ours, theirs in zip(history, records, strict=True):
        assert ours.bytes_down == theirs.bytes_down + more * len(set(ours.clients) - heard)
        assert ours.bytes_up == theirs.bytes_up
        heard |= set(ours.clients)


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_every_method_in_a_loop_of_ones_own_is_the_simulators_run(name, tmp_path):
    task, settings = classification(), fedmim.Settings(**BUSY)  # float64
    strategy, model = run(EVERY_METHOD[name], task, settings, tmp_path)
    records, expected = run_simulator(EVERY_METHOD[name], task, settings)
    for key, value in model.items():
        torch.testing.assert_close(value, expected[-1][key], rtol=1e-10, atol=1e-12)
    assert_same_bytes(strategy.history, records, EVERY_METHOD[name], task)
    assert [r.train_loss for r in strategy.history] == pytest.approx([r.train_loss for r in records])


def test_buffers_go_both_ways(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    task = classification(sizes=(4, 8, 5, 12, 6, 6, 10), model=model)
    settings = fedmim.Settings(**BUSY | {"batch_size": None})
    _, found = run(fedmim.FedMIM(), task, settings, tmp_path)
    expected = run_simulator(fedmim.FedMIM(), task, settings)[1][-1]
    assert found["1.num_batches_tracked"] == expected["1.num_batches_tracked"] > 0
    for key, value in found.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-10, atol=1e-12)


def test_lost_models_are_sent_again_to_an_app_of_ones_own(tmp_path):
    task, settings = classification(), fedmim.Settings(**BUSY | {"participation": 1.0, "history": "catch-up"})
    algorithm = fedmim.FedMIM()

    def lose(message, answer):
        config = message.content.get("config", {})
        if config.get("server-round") == 4 and (tmp_path / "disk-2").exists():
            shutil.rmtree(tmp_path / "disk-2")
        return answer()

    strategy, model = run(algorithm, task, settings, tmp_path, lose)
    expected = run_simulator(algorithm, task, settings)[1][-1]
    for key, value in model.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-10, atol=1e-12)
    assert not strategy.failures


def test_another_method_than_the_servers_is_rejected(tmp_path):
    task, settings = classification(), fedmim.Settings(**BUSY)
    grid = federation(own_app(fedmim.FedCM(), task, settings), N, tmp_path)
    strategy = FlowerStrategy(fedmim.FedMIM(), task.model, settings, clients=N, wait=0.0)
    with pytest.raises(RuntimeError, match="algorithm: the server runs FedMIM"):
        strategy.start(grid)


def test_mistakes_in_the_strategys_options_are_named():
    task, settings = classification(), fedmim.Settings(**BUSY)
    for options, words in (
        ({"clients": 3, "min_available_nodes": 4}, "min_available_nodes: must be from 1 to 3"),
        ({"clients": 3, "client_state": "disk"}, "client_state: must be node or server"),
        ({"clients": 3, "resume": True}, "folder: name the folder"),
        ({"clients": 0}, "clients: must be a whole number of at least 1, got 0"),
        ({"clients": 3, "fraction_train": 0.0}, "fraction_train: must be above 0"),
        ({"clients": 3, "fraction_evaluate": 5.0}, "fraction_evaluate: must be between 0 and 1, got 5"),
        ({"clients": 3, "min_train_nodes": 0}, "min_train_nodes: must be a whole number of at least 1"),
        ({"clients": 3, "min_evaluate_nodes": -1}, "min_evaluate_nodes: must be a whole number of at least 1"),
        ({"clients": 3, "wait": float("nan")}, "wait: must be a number of seconds, at least 0, got nan"),
    ):
        with pytest.raises(UserError, match=words):
            FlowerStrategy(fedmim.FedAvg(), task.model, settings, **options)
    with pytest.raises(UserError, match="Flower does not support bfloat16 arrays"):
        FlowerStrategy(fedmim.FedAvg(), task.model.bfloat16(), settings, clients=3)
