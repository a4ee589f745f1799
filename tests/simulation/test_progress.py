"""What `simulate` shows of its progress and of its results."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

import fedmim
from fedmim.simulation import progress


class Line:
    """In place of LiveLine: all texts."""

    def __init__(self):
        self.after, self.texts = None, []

    @contextmanager
    def __call__(self, after):
        self.after = after
        yield self

    def show(self, text):
        self.texts.append(text)


@pytest.fixture
def line(monkeypatch):
    found = Line()
    monkeypatch.setattr(progress, "LiveLine", found)
    return found


def record(number, accuracy=None, loss=None):
    values = {"train_loss": 0.123456, "consistency": 0.1, "lr": 0.1, "clients": tuple(range(3))}
    counts = {"bytes_up": 1, "bytes_down": 2, "refused": 0, "seconds": 0.25}
    return fedmim.Record(number, accuracy, loss, **values, **counts)


def test_the_line_has_the_round_the_last_accuracy_and_the_time_left(line, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.showing_rounds("FedAvg, seed 3", 4) as show:
        for number, accuracy in ((1, None), (2, 0.5), (3, None), (4, 0.75)):
            now[0] += 10.0
            show(record(number, accuracy), None)
    assert line.after == 2.0
    assert line.texts == [
        "FedAvg, seed 3: round 1 of 4, 0:00:30 left",
        "FedAvg, seed 3: round 2 of 4, accuracy 50.00 %, 0:00:20 left",
        "FedAvg, seed 3: round 3 of 4, accuracy 50.00 %, 0:00:10 left",
        "FedAvg, seed 3: round 4 of 4, accuracy 75.00 %, 0:00:40 in all",
    ]


def test_the_line_of_a_run_that_stops_early_ends_with_the_reason_and_no_time_left(line):
    task = fedmim.Task.named("digits", clients=5, model="logistic")
    settings = fedmim.Settings(rounds=30, local_epochs=1, lr=1e-9, patience=2)
    assert len(fedmim.simulate(fedmim.FedAvg(), task, settings).history) == 3
    assert "left" in line.texts[-2]
    assert "stopped in round 3, no improvement since round 1, 0:00:0" in line.texts[-1]
    assert line.texts[-1].endswith("in all")


def test_simulate_shows_every_round_unless_told_not_to(line):
    task = fedmim.Task.named("digits", clients=5, model="logistic")
    settings = fedmim.Settings(rounds=3, local_epochs=1)
    first = fedmim.simulate(fedmim.FedAvg(), task, settings)
    assert [text.split(",")[1] for text in line.texts] == [f" seed 0: round {number} of 3" for number in (1, 2, 3)]
    line.texts.clear()
    second = fedmim.simulate(fedmim.FedAvg(), task, settings, progress=False)
    assert line.texts == []
    assert torch.equal(first.params, second.params)


def test_a_result_prints_as_rounds_last_and_best_accuracy_and_time():
    history = [record(1, 0.5, 1.0), record(2, 0.75, 0.5), record(3), record(4, 0.6, 0.75)]
    result = fedmim.Result(torch.zeros(2), torch.nn.Linear(1, 1), history)
    assert repr(result) == "Result(rounds 4, accuracy 60.00 %, best 75.00 %, seconds 1.0)"
    assert result._repr_html_() == (
        "<table><tr><th>rounds</th><th>accuracy</th><th>best</th><th>seconds</th></tr>"
        "<tr><td>4</td><td>60.00 %</td><td>75.00 %</td><td>1.0</td></tr></table>"
    )


def test_a_result_without_a_metric_prints_its_loss():
    history = [replace(record(number), test_loss=loss) for number, loss in ((1, 0.25), (2, 0.5))]
    result = fedmim.Result(torch.zeros(2), torch.nn.Linear(1, 1), history)
    assert repr(result) == "Result(rounds 2, test loss 0.5, lowest 0.25, seconds 0.5)"
    assert repr(fedmim.Result(torch.zeros(2), torch.nn.Linear(1, 1), [])) == "Result(rounds 0, seconds 0.0)"


def test_a_record_prints_without_what_it_does_not_have():
    assert repr(record(1, 0.5)) == (
        "Record(round=1, test_accuracy=0.5, test_loss=None, train_loss=0.1235, consistency=0.1, lr=0.1, "
        "clients=(0, 1, 2), bytes_up=1, bytes_down=2, refused=0, seconds=0.25)"
    )
    many = replace(record(1), clients=tuple(range(1000)), failed=3)
    assert "clients=(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... 1000 in all)" in repr(many)
    assert repr(many).endswith("failed=3)")


def test_settings_print_what_differs_from_the_defaults():
    assert repr(fedmim.Settings()) == "Settings()"
    settings = fedmim.Settings(rounds=7, lr=0.123456789)
    assert repr(settings) == "Settings(rounds=7, lr=0.123456789)"
    assert repr(fedmim.Execution(engine="serial")) == "Execution(engine='serial')"
