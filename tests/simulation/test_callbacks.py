"""Callbacks: told of the start, of each round and of the end, whatever happens."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedmim
from fedmim.errors import UserError
from fedmim.experiments.methods import find_callback

EXAMPLES = Path(__file__).parents[2] / "examples"


class Heard(fedmim.Callback):
    def __init__(self, fail_in=None):
        self.events, self.fail_in = [], fail_in

    def on_start(self, run):
        self.events.append(("start", run.name))

    def on_round(self, run, record):
        self.events.append(("round", record.round))
        if record.round == self.fail_in:
            raise RuntimeError("enough")

    def on_end(self, run):
        self.events.append(("end", run.name))


@pytest.fixture(scope="module")
def task():
    return fedmim.Task.named("digits", clients=5, model="logistic")


SETTINGS = fedmim.Settings(rounds=2, local_epochs=1)


def test_every_callback_hears_of_the_start_each_round_and_the_end(task):
    first, second = Heard(), Heard()
    result = fedmim.simulate(fedmim.FedMIM(), task, SETTINGS, callbacks=[first, second])
    assert first.events == [("start", "FedMIM"), ("round", 1), ("round", 2), ("end", "FedMIM")]
    assert second.events == first.events
    assert len(result.history) == 2


def test_the_end_is_told_also_when_a_run_breaks_off(task):
    first, second = Heard(), Heard(fail_in=1)
    with pytest.raises(RuntimeError, match="enough"):
        fedmim.simulate(fedmim.FedMIM(), task, SETTINGS, callbacks=[first, second])
    assert first.events[-1] == second.events[-1] == ("end", "FedMIM")


def test_a_callback_that_overrides_nothing_is_a_callback(task):
    class Nothing(fedmim.Callback):
        pass

    fedmim.simulate(fedmim.FedAvg(), task, SETTINGS, callbacks=[Nothing()])


def test_a_callback_knows_method_hyper_parameters_and_settings(task):
    class Asks(fedmim.Callback):
        def on_start(self, run):
            self.settings = run.settings

    asks = Asks()
    fedmim.simulate(fedmim.FedMIM(alpha=(0.5,)), task, SETTINGS, callbacks=[asks])
    assert asks.settings["method"] == "FedMIM"
    assert asks.settings["hyper_parameters"]["alpha"] == (0.5,)
    assert asks.settings["rounds"] == 2


def test_the_example_logs_to_weights_and_biases(task, monkeypatch):
    calls = []

    def fake_of(function):
        return lambda *words, **options: calls.append((function, words, options))

    fake = SimpleNamespace(**{function: fake_of(function) for function in ("init", "log", "finish")})
    monkeypatch.setitem(sys.modules, "wandb", fake)
    kind = runpy.run_path(str(EXAMPLES / "wandb_callback.py"))["WandB"]
    history = fedmim.simulate(fedmim.FedAvg(), task, SETTINGS, callbacks=[kind()]).history
    assert [name for name, _, _ in calls] == ["init", "log", "log", "finish"]
    assert calls[0][2]["config"]["lr"] == SETTINGS.lr
    assert calls[1][1][0]["test_accuracy"] == history[0].test_accuracy
    assert calls[2][2]["step"] == 2


def test_a_callback_is_found_in_a_file_and_mistakes_are_named(tmp_path):
    (tmp_path / "own.py").write_text("import fedmim\nclass Mine(fedmim.Callback):\n    pass\nclass Other:\n    pass\n")
    assert type(find_callback(f"{tmp_path / 'own.py'}:Mine")).__name__ == "Mine"
    for name, message in [
        (f"{tmp_path / 'own.py'}:Other", "no fedmim.Callback named 'Other'"),
        (f"{tmp_path / 'none.py'}:Mine", "none.py is not a file"),
        ("Mine", "must be file.py:ClassName, got 'Mine'"),
    ]:
        with pytest.raises(UserError, match=message):
            find_callback(name)


def test_a_callback_sees_the_model_of_each_round_and_only_then(task):
    class Asks(fedmim.Callback):
        def __init__(self):
            self.accuracies, self.run = [], None

        def on_start(self, run):
            self.run = run

        def on_round(self, run, record):
            x, y = task.test
            outputs = run.model()(x if task.prepare is None else task.prepare(x))
            self.accuracies.append((outputs.argmax(1) == y).double().mean().item())

    asks = Asks()
    result = fedmim.simulate(fedmim.FedMIM(), task, SETTINGS, callbacks=[asks])
    assert asks.accuracies == [record.test_accuracy for record in result.history]
    with pytest.raises(UserError, match="in on_round only"):
        asks.run.model()
