"""Curves for TensorBoard, read back by TensorBoard itself."""

import sys

import pytest

from fedmim import FedAvg, Settings, Task, simulate
from fedmim.errors import UserError
from fedmim.report.tensorboard import TensorBoard

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own parts


def scalars(folder, tag):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_every_round_is_there_and_a_run_that_starts_again_replaces_its_own(tmp_path):
    task = Task.named("digits", clients=5, model="logistic")
    board = TensorBoard(tmp_path)
    history = simulate(FedAvg(), task, Settings(rounds=3, local_epochs=1, eval_every=2), callbacks=[board]).history
    for _ in range(2):
        folder = tmp_path / "FedAvg"
        losses = scalars(folder, "loss/train")
        assert losses == [(record.round, pytest.approx(record.train_loss)) for record in history]
        accuracies = [(record.round, pytest.approx(record.test_accuracy)) for record in history[1:]]
        assert scalars(folder, "accuracy/test") == accuracies  # evaluated in rounds 2 and 3
        assert scalars(folder, "bytes/up") == [(record.round, record.bytes_up) for record in history]
        simulate(FedAvg(), task, Settings(rounds=3, local_epochs=1, eval_every=2), callbacks=[board])


def test_without_tensorboard_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install 'fedmim\[tensorboard\]'"):
        TensorBoard(tmp_path)
