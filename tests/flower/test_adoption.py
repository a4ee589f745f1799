"""An existing Flower app takes over fedmim: with the changes of docs/deploy.md, or on the server alone."""

from __future__ import annotations

import difflib
import importlib
import logging
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from loopback import Loopback, LoopbackNode

import fedmim
from fedmim.errors import UserError
from fedmim.flower import FlowerStrategy
from fedmim.flower.training_round import RoundFailedError

ROOT = Path(__file__).parents[2]
STOCK, ADOPTED = Path(__file__).parent / "apps" / "quickstart", ROOT / "examples" / "flower-quickstart"
FILES = ("client_app.py", "server_app.py", "task.py")
CONFIG = {"num-server-rounds": 3, "fraction-evaluate": 0.5, "local-epochs": 2, "learning-rate": 0.05, "batch-size": 10}
CLIENTS = 4


class App:
    """The modules of an app, and a federation of its clients."""

    def __init__(self, folder, monkeypatch, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
            monkeypatch.delitem(sys.modules, name)
        self.server, self.client, self.task = (
            importlib.import_module(f"quickstart.{name}") for name in ("server_app", "client_app", "task")
        )
        nodes = {}
        for i in range(CLIENTS):
            config = {"partition-id": i, "num-partitions": CLIENTS, "state-dir": str(tmp_path / f"disk-{i}")}
            nodes[100 + i] = LoopbackNode(self.client.app, config, CONFIG)
        self.grid = Loopback(nodes)

    def run(self, **config):
        """Run the server, as Flower does; return the model that it saves."""
        self.server.app(self.grid, Context(1, 1, {}, RecordDict(), CONFIG | config))
        return torch.load("final_model.pt")

    def start(self, strategy, rounds=3):
        """Run another strategy over the same clients; return the model."""
        torch.manual_seed(0)
        arrays = ArrayRecord(self.task.Net().state_dict())
        result = strategy.start(self.grid, arrays, num_rounds=rounds, train_config=ConfigRecord({"lr": 0.05}))
        return result.arrays.to_torch_state_dict()


@pytest.fixture
def app(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda folder: App(folder, monkeypatch, tmp_path)


def changes():
    """The changed lines of each file, as a diff has them."""
    for name in FILES:
        old, new = ((folder / "quickstart" / name).read_text().splitlines() for folder in (STOCK, ADOPTED))
        yield name, [line for line in difflib.unified_diff(old, new, n=0, lineterm="") if re.match(r"[+-][^+-]", line)]


def test_the_document_shows_the_changes_from_the_stock_app_to_the_example_six_new_lines():
    text = (ROOT / "docs" / "deploy.md").read_text()
    shown = re.search(r"```diff\n(.*?)```", text, re.DOTALL)[1].splitlines()
    expected = [line for name, lines in changes() for line in [f"--- quickstart/{name}", *lines]]
    assert shown == expected
    assert sum(line.startswith("+") for line in shown) == 6


def test_the_adopted_app_runs_and_its_record_has_the_clients_metrics(app, caplog):
    adopted = app(ADOPTED)
    with caplog.at_level(logging.INFO, "flwr"):
        model = adopted.run()
    assert model.keys() == adopted.task.Net().state_dict().keys()
    assert "Traceback" not in caplog.text
    assert (
        caplog.text.count("scales a client's own gradient step by A = 1 - sum(alpha) = 0.1: at lr 0.05 to 0.005") == 1
    )
    assert "eval_acc" in caplog.text


def test_an_adopted_fedavg_with_fedmims_optimizer_is_flowers_fedavg(app):
    """The same clients, minibatches and weights: Flower's mean of their SGD is ours."""
    expected = app(STOCK).start(FedAvg(fraction_evaluate=0.0))
    adopted = app(ADOPTED)
    found = adopted.start(FlowerStrategy(fedmim.FedAvg(), adopted.task.Net(), fraction_evaluate=0.0))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "algorithm", [fedmim.FedAvg(), fedmim.Leap(fedmim.FedAvg(), alpha=(0.5,)), fedmim.FedAvgM(0.5)]
)
def test_methods_of_the_server_alone_work_with_clients_that_know_nothing_of_fedmim(algorithm, app):
    """FedAvg of Flower, with the inertia of x_t - x_{t-1} added by hand."""
    stock = app(STOCK)
    found = stock.start(FlowerStrategy(algorithm, stock.task.Net(), fraction_evaluate=0.0), rounds=3)

    def flat(state):
        return torch.cat([value.flatten() for value in state.values()])

    def one_round(state):
        start = ArrayRecord(state)
        done = FedAvg(fraction_evaluate=0.0).start(
            stock.grid, start, num_rounds=1, train_config=ConfigRecord({"lr": 0.05})
        )
        return done.arrays.to_torch_state_dict()

    torch.manual_seed(0)
    x = stock.task.Net().state_dict()
    increment = {name: torch.zeros_like(value) for name, value in x.items()}
    for _ in range(3):
        if isinstance(algorithm, fedmim.Leap):  # clients start from x + alpha * increment
            start = {name: x[name] + 0.5 * increment[name] for name in x}
            new = one_round(start)
        else:  # v <- beta v + (x - mean); x <- x - v
            mean, beta = one_round(x), 0.5 if isinstance(algorithm, fedmim.FedAvgM) else 0.0
            new = {name: mean[name] + beta * increment[name] for name in x}
        increment, x = {name: new[name] - x[name] for name in x}, new
    torch.testing.assert_close(flat(found), flat(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("forgotten", "line"),
    [
        ("client_app.py", "FlowerOptimizer: create the app with `from fedmim.flower import ClientApp`"),
        ("task.py", "it does not train with FedMIM: in its app, use ClientApp of fedmim.flower, and FlowerOptimizer"),
    ],
)
def test_a_forgotten_change_is_named_in_one_line_on_the_server(forgotten, line, app, tmp_path, caplog):
    shutil.copytree(ADOPTED, tmp_path / "app")
    shutil.copy(STOCK / "quickstart" / forgotten, tmp_path / "app" / "quickstart" / forgotten)
    with caplog.at_level(logging.WARNING, "flwr"), pytest.raises(RoundFailedError, match=re.escape(line)) as failure:
        app(tmp_path / "app").run()
    assert str(failure.value).count(line) == 1
    assert "clients 0, 1, 2, 3: " in str(failure.value)
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and line in r.getMessage()]
    assert len(warnings) == 1


def test_a_client_that_trains_for_a_server_without_fedmim_says_so(app):
    adopted = app(ADOPTED)
    adopted.start(FedAvg(fraction_evaluate=0.0), rounds=1)
    reasons = [reply.error.reason for reply in adopted.grid.replies if reply.has_error()]
    assert reasons
    assert all("the server must run fedmim.flower.FlowerStrategy" in reason for reason in reasons)


def test_flowers_own_differential_privacy_around_the_strategy_is_rejected(app):
    """It would add its noise to arrays that fedmim does not read: no privacy at all."""
    stock = app(STOCK)
    strategy = FlowerStrategy(fedmim.FedAvg(), stock.task.Net())
    private = DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 1.0, CLIENTS)
    with pytest.raises(UserError, match=r"call its own start\(\).*would add its noise to arrays that are not used"):
        stock.start(private)


def test_the_defaults_are_those_of_flowers_fedavg(app):
    adopted = app(ADOPTED)
    strategy = FlowerStrategy(fedmim.FedMIM(), adopted.task.Net())
    adopted.start(strategy, rounds=2)
    settings = strategy.settings
    assert (settings.weighting, settings.clip_norm, settings.weight_decay) == ("samples", None, 0.0)
    assert settings.lr_at(0) == settings.lr_at(1) == 0.05
    assert [record.clients for record in strategy.history] == [(0, 1, 2, 3)] * 2
    assert all(record.test_accuracy is not None for record in strategy.history)  # by all clients, weighted


def test_flowers_options_mean_the_same(app):
    adopted = app(ADOPTED)

    def longest(replies, weighted_by):
        assert weighted_by == "num-examples"
        values = [reply["metrics"]["train_loss"] for reply in replies]
        return fedmim.flower.strategy.MetricRecord({"longest": max(values)})

    options = {"fraction_train": 0.5, "min_train_nodes": 1, "fraction_evaluate": 0.0, "train_metrics_aggr_fn": longest}
    strategy = FlowerStrategy(fedmim.FedMIM(), adopted.task.Net(), **options)
    torch.manual_seed(0)
    result = strategy.start(adopted.grid, num_rounds=4, train_config=ConfigRecord({"lr": 0.05}))
    assert [len(record.clients) for record in strategy.history] == [2] * 4
    assert len({record.clients for record in strategy.history}) > 1
    assert "longest" in result.train_metrics_clientapp[1]
    assert not result.evaluate_metrics_clientapp
    with pytest.raises(UserError, match="min_available_nodes: 9 are needed, but 4 were connected"):
        FlowerStrategy(fedmim.FedMIM(), adopted.task.Net(), min_available_nodes=9, wait=0.1).start(
            adopted.grid, train_config=ConfigRecord({"lr": 0.05})
        )
    with pytest.raises(UserError, match=r"lr: give the learning rate, start\(train_config"):
        FlowerStrategy(fedmim.FedMIM(), adopted.task.Net()).start(adopted.grid)
    with pytest.raises(UserError, match="clients: name the number of partitions"):
        FlowerStrategy(fedmim.FedMIM(), adopted.task.Net(), fedmim.Settings())
