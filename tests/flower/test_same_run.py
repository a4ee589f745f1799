"""A Flower run equals the simulator's run: the same bits after every round, and the same traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from every_method import EVERY_METHOD
from flwr.app import ArrayRecord
from loopback import assert_same, federation, run_simulator
from problems import BUSY, SIZES, classification, network
from torch import nn
from torch.utils.data import Dataset

import fedmim
from fedmim.flower import FlowerStrategy, client_app, evaluate_fn


def batch_norm_network(dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


class TwoInputs(nn.Module):
    """A model of inputs by name, which returns a dict."""

    def __init__(self):
        super().__init__()
        self.network = network(torch.float32)

    def forward(self, right, left):
        return {"logits": self.network(torch.cat([left, right], dim=1))}


def structured(plain):
    """The task with dicts for x, the targets and the outputs."""

    def pair(x, y):
        return {"left": x[:, :1], "right": x[:, 1:]}, {"label": y}

    return fedmim.Task(
        TwoInputs(),
        [pair(*each) for each in plain.clients],
        pair(*plain.test),
        loss=lambda outputs, targets: nn.functional.cross_entropy(outputs["logits"], targets["label"]),
        metric=lambda outputs, targets: (outputs["logits"].argmax(1) == targets["label"]).double().mean(),
        names=[f"user {client}" for client in range(len(plain.clients))],
        client_tests=[pair(*plain.test), *[None] * (len(plain.clients) - 1)],
    )


class Shaken(Dataset):
    """Items with random noise."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index] + 0.1 * torch.rand(()), self.y[index]


def live(plain):
    return fedmim.Task.from_datasets(plain.model, [Shaken(*each) for each in plain.clients], plain.test, live=True)


def run_flower(algorithm, task, settings, folder, fault=None, **options):
    """The strategy after its run, the global models after each round, and the grid."""
    app = client_app(lambda partition, context: task, algorithm, settings)
    grid = federation(app, len(task.clients), folder, fault)
    strategy = FlowerStrategy(algorithm, task.model, settings, clients=len(task.clients), wait=0.0, **options)
    models = []
    strategy.start(grid, evaluate_fn=lambda round, arrays: models.append(arrays.to_torch_state_dict()))
    return strategy, models[1:], grid


WEIGHED = [(name, "equal") for name in EVERY_METHOD]
WEIGHED += [(name, "samples") for name in ("fedmim", "scaffold", "feddyn", "own: state on both sides")]


@pytest.mark.parametrize(("name", "weighting"), WEIGHED)
def test_every_method_gives_the_simulators_bits_records_and_bytes(name, weighting, tmp_path):
    algorithm, settings = EVERY_METHOD[name], fedmim.Settings(**BUSY, weighting=weighting)
    task = classification(dtype=torch.float32)
    strategy, models, _ = run_flower(algorithm, task, settings, tmp_path)
    records, expected = run_simulator(algorithm, task, settings)
    assert_same(models, expected)
    for ours, theirs in zip(strategy.history, records, strict=True):
        assert replace(ours, seconds=0) == replace(theirs, seconds=0, test_accuracy=None, test_loss=None)


@pytest.mark.parametrize("kind", [structured, live])
def test_structured_and_live_data_of_unequal_clients_give_the_simulators_bits(kind, tmp_path):
    task, settings = kind(classification(dtype=torch.float32)), fedmim.Settings(**BUSY)
    strategy, models, _ = run_flower(fedmim.Scaffold(), task, settings, tmp_path, fraction_evaluate=1.0)
    records, expected = run_simulator(fedmim.Scaffold(), task, settings)
    assert_same(models, expected)
    for ours, theirs in zip(strategy.history, records, strict=True):
        for name in ("clients", "train_loss", "consistency", "bytes_up", "bytes_down"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert ours.test_loss == pytest.approx(theirs.test_loss, rel=1e-6)
        assert ours.test_accuracy == pytest.approx(theirs.test_accuracy)


@pytest.mark.parametrize("history", ["server", "catch-up", "broadcast"])
@pytest.mark.parametrize("name", ["fedmim J=3", "own: one past model"])
def test_every_history_policy_gives_the_same_bits_and_the_ledgers_bytes(name, history, tmp_path):
    algorithm = EVERY_METHOD[name]
    task, settings = classification(dtype=torch.float32), fedmim.Settings(**BUSY | {"rounds": 8, "history": history})
    strategy, models, _ = run_flower(algorithm, task, settings, tmp_path)
    records, expected = run_simulator(algorithm, task, replace(settings, history="server"))
    assert_same(models, expected)
    ledger = [record.bytes_down for record in run_simulator(algorithm, task, settings)[0]]
    assert [record.bytes_down for record in strategy.history] == ledger
    assert [record.bytes_up for record in strategy.history] == [record.bytes_up for record in records]


@pytest.mark.parametrize("name", ["fedmim", "scaffold", "feddyn"])
def test_batch_norm_buffers_are_averaged_as_in_the_simulator(name, tmp_path):
    task = classification(sizes=(8, 5, 6, 10), dtype=torch.float32, model=batch_norm_network())
    settings = fedmim.Settings(**BUSY | {"local_steps": 3, "batch_size": None})
    strategy, models, _ = run_flower(EVERY_METHOD[name], task, settings, tmp_path)
    records, expected = run_simulator(EVERY_METHOD[name], task, settings)
    assert_same(models, expected)
    assert [r.bytes_down for r in strategy.history] == [r.bytes_down for r in records]
    assert [r.bytes_up for r in strategy.history] == [r.bytes_up for r in records]


def test_the_bytes_of_the_records_are_those_of_the_messages_but_for_their_headers(tmp_path):
    task, settings = classification(dtype=torch.float32), fedmim.Settings(**BUSY)
    strategy, _, grid = run_flower(fedmim.Scaffold(), task, settings, tmp_path)

    def serialised(messages):
        kept = [m for m in messages if m.metadata.message_type == "train" and "arrays" in m.content]
        arrays = [array for m in kept for record in m.content.array_records.values() for array in record.values()]
        return sum(len(array.data) for array in arrays), len(arrays)

    tensors = len(task.model.state_dict())
    for messages, count, each in (
        (grid.sent, sum(record.bytes_down for record in strategy.history), tensors + 1),  # and SCAFFOLD's c
        (grid.replies, sum(record.bytes_up for record in strategy.history), tensors),
    ):
        wire, arrays = serialised(messages)
        assert arrays == each * 4 * settings.rounds  # for each of 4 clients
        assert wire == count + 128 * arrays  # the header of numpy's format


def test_a_task_with_the_clients_own_data_alone_is_enough(tmp_path):
    task, settings = classification(dtype=torch.float32), fedmim.Settings(**BUSY)
    algorithm = fedmim.FedMIM()
    app = client_app(
        lambda partition, context: replace(task, clients=[task.clients[partition]]),
        lambda context: algorithm,
        lambda context: settings,
    )
    grid = federation(app, len(SIZES), tmp_path)
    strategy = FlowerStrategy(algorithm, task.model, settings, clients=len(SIZES), wait=0.0)
    result = strategy.start(grid)
    _, expected = run_simulator(algorithm, task, settings)
    assert_same([result.arrays.to_torch_state_dict()], expected[-1:])


def test_the_first_weights_may_come_as_flowers_arrays(tmp_path):
    settings, algorithm = fedmim.Settings(**BUSY), fedmim.FedAvg()
    task = classification(dtype=torch.float32)
    other = network(torch.float32)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    app = client_app(lambda partition, context: task, algorithm, settings)
    strategy = FlowerStrategy(algorithm, task.model, settings, clients=len(SIZES), wait=0.0)
    result = strategy.start(federation(app, len(SIZES), tmp_path), ArrayRecord(other.state_dict()), num_rounds=2)
    _, expected = run_simulator(algorithm, replace(task, model=other), settings)
    assert_same([result.arrays.to_torch_state_dict()], expected[1:2])


def test_clients_evaluate_the_model_on_their_own_test_data(tmp_path):
    task, settings = classification(dtype=torch.float32), fedmim.Settings(**BUSY | {"rounds": 2})
    app = client_app(lambda partition, context: task, fedmim.FedAvg(), settings)
    strategy = FlowerStrategy(
        fedmim.FedAvg(), task.model, settings, clients=len(SIZES), wait=0.0, fraction_evaluate=1.0
    )
    result = strategy.start(federation(app, len(SIZES), tmp_path))
    expected = fedmim.simulate(fedmim.FedAvg(), task, settings).history
    for record in expected:
        found = result.evaluate_metrics_clientapp[record.round]
        assert found["test_loss"] == pytest.approx(record.test_loss, rel=1e-6)
        assert found["test_accuracy"] == pytest.approx(record.test_accuracy)


def test_the_servers_own_evaluation_is_the_simulators(tmp_path):
    task, settings = classification(dtype=torch.float32), fedmim.Settings(**BUSY | {"eval_every": 2})
    app = client_app(lambda partition, context: task, fedmim.FedAvg(), settings)
    strategy = FlowerStrategy(fedmim.FedAvg(), task.model, settings, clients=len(SIZES), wait=0.0)
    result = strategy.start(federation(app, len(SIZES), tmp_path), evaluate_fn=evaluate_fn(task, settings))
    expected = fedmim.simulate(fedmim.FedAvg(), task, settings).history
    assert sorted(result.evaluate_metrics_serverapp) == [0, 2, 4, 5]
    for record in expected:
        if record.test_loss is not None:
            found = result.evaluate_metrics_serverapp[record.round]
            assert found["test_loss"] == pytest.approx(record.test_loss, rel=1e-6)
            assert found["test_accuracy"] == pytest.approx(record.test_accuracy)


@pytest.mark.parametrize("changes", [{"lr_schedule": "cosine"}, {"lr_schedule": "step:2,0.5"}, {"local_epochs": 0.4}])
def test_schedules_and_parts_of_an_epoch_give_the_simulators_bits(changes, tmp_path):
    task, settings = classification(dtype=torch.float32), fedmim.Settings(**BUSY | {"lr_decay": 1.0} | changes)
    strategy, models, _ = run_flower(fedmim.Scaffold(), task, settings, tmp_path)
    records, expected = run_simulator(fedmim.Scaffold(), task, settings)
    assert_same(models, expected)
    assert [record.lr for record in strategy.history] == [record.lr for record in records]


def test_a_federation_stops_where_the_simulator_stops_and_goes_on_to_its_bits(tmp_path):
    task, algorithm = classification(dtype=torch.float32), fedmim.FedAvg()
    whole = fedmim.Settings(**BUSY | {"rounds": 12})
    stops = replace(
        whole, until=sorted({record.test_accuracy for record in run_simulator(algorithm, task, whole)[0]})[1]
    )
    expected = run_simulator(algorithm, task, stops)[0]
    assert 1 < len(expected) < 12
    for settings, rounds in ((stops, len(expected)), (stops, len(expected)), (whole, 12)):
        app = client_app(lambda partition, context: task, algorithm, settings)
        strategy = FlowerStrategy(
            algorithm, task.model, settings, clients=len(task.clients), wait=0.0, folder=tmp_path / "run",
            resume=(tmp_path / "run").exists(),
        )  # fmt: skip
        grid = federation(app, len(task.clients), tmp_path)
        with pytest.raises(fedmim.errors.UserError, match="until, patience: need an evaluation"):
            FlowerStrategy(algorithm, task.model, stops, clients=len(task.clients), wait=0.0).start(grid)
        strategy.start(grid, evaluate_fn=evaluate_fn(task, settings))
        assert [record.round for record in strategy.history] == list(range(1, rounds + 1))
    assert_same([strategy.module.state_dict()], run_simulator(algorithm, task, whole)[1][-1:])
