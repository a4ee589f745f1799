"""Worker processes that die or hang: they are named and replaced, and the run has the bits of one without faults."""

import os
import signal
import subprocess
from types import SimpleNamespace

import pytest
import torch
from problems import classification
from torch import nn
from worker_runs import assert_same_bits, finished, protocol, state_of

import fedmim
from fedmim.errors import UserError
from fedmim.simulation import pool as pool_module
from fedmim.simulation.messages import Job, Line, SetUp
from fedmim.simulation.pool import AT_FIRST, AT_LEAST, TIMES, Assignment, Pool, SharedRun
from fedmim.simulation.shared import Span

SIZES = (6, 1, 8)  # client 1 is the one of a single sample
FULL = {"participation": 1.0}


def task_with(fault, **options):
    """A task in whose local steps client 1 first calls this."""

    def loss(outputs, targets):
        if len(targets) == 1:
            fault()
        return nn.functional.cross_entropy(outputs, targets)

    return classification(SIZES, loss=loss, **options)


def once(marker, act):
    """The act at the first call in any process, which leaves its process id in the marker; nothing afterwards."""

    def fault():
        if not marker.exists():
            marker.write_text(str(os.getpid()))
            act()

    return fault


@pytest.fixture
def patient(monkeypatch, tmp_path):
    """Only a worker that is stopped counts as hanging, at once; the others may take as long as they like."""
    monkeypatch.setattr(pool_module, "TICK", 0.05)
    marker = tmp_path / "stopped"

    def hangs_after(self, seconds):
        stopped = [each for each in Pool.of(2).workers.values() if state_of(each.process.pid) == "T"]
        return any(each.assignment is self for each in stopped)

    monkeypatch.setattr(Assignment, "hangs_after", hangs_after)
    return marker


def kill_me(number=signal.SIGKILL):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("act", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "was killed by SIGTERM"),
        (lambda: os._exit(7), "ended with exit code 7"),
    ],
)
def test_the_client_of_a_worker_that_died_is_trained_again_to_the_same_bits(act, how, tmp_path):
    task = task_with(once(tmp_path / "died", act))
    message = rf"worker process \d+ {how} while training client 1 in round 1; a new one replaces it"
    with pytest.warns(UserWarning, match=message):
        run = finished(fedmim.Scaffold(), task, **FULL)
    assert_same_bits(run, finished(fedmim.Scaffold(), task, engine="serial", **FULL), clients=3)


def test_a_client_that_is_trained_again_starts_from_its_old_state(tmp_path):
    marker = tmp_path / "died"

    class DiesLate(dict):
        """Vectors of a client; the first worker to write those of round 3 into their place dies thereafter."""

        def items(self):
            yield from super().items()
            if not marker.exists() and (tmp_path / "ready").exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    class LateScaffold(fedmim.Scaffold):
        def finish(self, w, local):
            upload, slots = super().finish(w, local)
            return upload, DiesLate(slots)

    task = classification()
    run = fedmim.rounds(LateScaffold(), task, *protocol(**FULL))
    records = [next(run), next(run)]
    (tmp_path / "ready").touch()
    with pytest.warns(UserWarning, match="was killed by SIGKILL"):
        records += list(run)
    assert marker.exists()
    expected = fedmim.simulate(fedmim.Scaffold(), task, *protocol(engine="serial", **FULL))
    assert torch.equal(run.params, expected.params)
    assert [record.train_loss for record in records] == [record.train_loss for record in expected.history]


def test_a_worker_that_is_stopped_is_killed_and_its_client_trained_again(patient):
    task = task_with(once(patient, lambda: os.kill(os.getpid(), signal.SIGSTOP)))
    with pytest.warns(UserWarning, match=r"took no step for .* s and was killed while training client 1 in round 1"):
        run = finished(fedmim.Scaffold(), task, **FULL)
    assert state_of(int(patient.read_text())) == ""
    assert_same_bits(run, finished(fedmim.Scaffold(), task, engine="serial", **FULL), clients=3)


def test_a_worker_that_is_stopped_in_its_set_up_is_replaced(patient):
    class Stopping(nn.Sequential):
        def __setstate__(self, state):
            super().__setstate__(state)
            once(patient, lambda: os.kill(os.getpid(), signal.SIGSTOP))()

    task = classification(SIZES, model=Stopping(nn.Linear(4, 3)).double())
    patient.touch()  # not in this process, where models are copied
    run = fedmim.rounds(fedmim.FedAvg(), task, *protocol(**FULL))
    patient.unlink()
    with pytest.warns(UserWarning, match="and was killed while setting up the run"):
        list(run)
    expected = fedmim.simulate(fedmim.FedAvg(), task, *protocol(engine="serial", **FULL))
    assert torch.equal(run.params, expected.params)


def test_a_round_that_was_abandoned_with_a_stopped_worker_does_not_block_the_next(patient):
    task = task_with(once(patient, lambda: os.kill(os.getpid(), signal.SIGSTOP)))
    run = fedmim.rounds(fedmim.FedAvg(), task, *protocol(**FULL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Assignment, "hangs_after", lambda self, seconds: patient.exists() and 1 / 0)
        with pytest.raises(ZeroDivisionError):  # as an interrupt would, while the worker is stopped
            next(run)
    with pytest.warns(UserWarning, match="and was killed while training client 1 in round 1"):
        list(run)
    expected = fedmim.simulate(fedmim.FedAvg(), task, *protocol(engine="serial", **FULL))
    assert torch.equal(run.params, expected.params)


@pytest.mark.filterwarnings("ignore:worker process")
def test_a_client_that_costs_three_workers_ends_the_run_in_one_line_and_the_pool_goes_on():
    program = os.getpid()
    task = task_with(lambda: os.getpid() == program or kill_me())
    message = (
        r"^engine: lost 3 worker processes while training client 1 in round 1, the last one was killed by SIGKILL; "
        r"if memory is short, try --workers 1, otherwise --engine serial, which shows the error itself$"
    )
    with pytest.raises(UserError, match=message):
        fedmim.simulate(fedmim.FedAvg(), task, *protocol(**FULL))
    whole = classification()
    assert_same_bits(finished(fedmim.FedAvg(), whole), finished(fedmim.FedAvg(), whole, engine="serial"))


@pytest.mark.filterwarnings("ignore:worker process")
def test_a_set_up_that_costs_three_workers_ends_the_run_in_one_line():
    task = classification(model=nn.Sequential(nn.Linear(4, 3), Restored(kill_me)).double())
    with pytest.raises(UserError, match="lost 3 worker processes while setting up the run, the last one was killed"):
        fedmim.simulate(fedmim.FedAvg(), task, *protocol())
    Pool.of(2).close()  # the other worker, which may still be dying of it


class Restored(nn.Module):
    """A layer that does nothing, but for an act where it is unpickled in another process."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def __deepcopy__(self, memo):
        return Restored(self.act)

    def __reduce__(self):
        act = self.act
        return (lambda: act() or Restored(act)), ()

    def forward(self, x):
        return x


def test_an_error_in_the_set_up_of_a_worker_is_one_line_that_says_what_and_what_to_do():
    def fail():
        raise LookupError("no layer\nof this kind")

    task = classification(model=nn.Sequential(nn.Linear(4, 3), Restored(fail)).double())
    message = r"^engine: cannot set up the run in a worker process \(LookupError: no layer of this kind\); use serial$"
    with pytest.raises(UserError, match=message):
        fedmim.simulate(fedmim.FedAvg(), task, *protocol())


def test_an_error_that_cannot_be_sent_is_told_in_words():
    class TwoPartError(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def fail():
        raise TwoPartError("this", "that")

    with pytest.raises(RuntimeError, match=r"TwoPartError.*this and that") as caught:
        fedmim.simulate(fedmim.FedAvg(), task_with(fail), *protocol(**FULL))
    assert caught.value.__notes__ == ["client 1 failed in round 1"]


def test_a_worker_that_died_between_rounds_is_replaced():
    task = classification()
    run = fedmim.rounds(fedmim.FedAvg(), task, *protocol())
    next(run)
    victim = Pool.of(2).workers[0].process
    victim.kill()
    victim.wait()
    with pytest.warns(UserWarning, match=f"worker process {victim.pid} was killed by SIGKILL while (idle|setting up)"):
        list(run)
    expected = fedmim.simulate(fedmim.FedAvg(), task, *protocol(engine="serial"))
    assert torch.equal(run.params, expected.params)


def test_workers_that_are_stopped_are_killed_when_the_pool_is_closed(monkeypatch):
    monkeypatch.setattr(pool_module, "GRACE", 0.2)
    pool = Pool(2)
    pool.ready(set())
    processes = [worker.process for worker in pool.workers.values()]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    pool.close()
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def new_run():
    return SharedRun(None, SetUp(0, Span(0, (), torch.uint8)), torch.zeros(2, dtype=torch.int64))


def test_patience_is_long_at_first_and_then_a_multiple_of_the_slowest_step():
    run, job = new_run(), Job(0, 0, 0, 0.1, 5, first=False)
    work = Assignment(run, job, worker=1)
    assert not work.hangs_after(AT_FIRST - 1)
    run.gradients[1] += 1
    assert not work.hangs_after(0.5)  # a step has ended, after all of this time
    assert run.slowest == AT_FIRST - 0.5
    assert not work.hangs_after(TIMES * run.slowest - 1)
    assert work.hangs_after(1)

    quick = new_run()
    quick.jobs = 1
    work = Assignment(quick, job, worker=0)
    for _ in range(1000):  # a client may take as long as it likes, as long as it goes on
        quick.gradients[0] += 1
        assert not work.hangs_after(2.0)
    assert quick.slowest == 2.0
    assert not work.hangs_after(AT_LEAST - 1)
    assert work.hangs_after(1)
    assert not Assignment(quick, quick.set_up, worker=0).hangs_after(AT_FIRST - 1)


def test_the_time_in_which_the_program_itself_was_stopped_does_not_count(monkeypatch):
    clock = SimpleNamespace(now=0.0)

    def hours_later():
        clock.now += 10_000.0
        return clock.now

    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=hours_later))
    task = classification()
    monkeypatch.setattr(pool_module, "AT_LEAST", AT_FIRST)
    assert_same_bits(finished(fedmim.FedAvg(), task), finished(fedmim.FedAvg(), task, engine="serial"))


def test_an_interrupt_to_the_workers_alone_is_ignored():
    task = classification()
    run = fedmim.rounds(fedmim.FedAvg(), task, *protocol())
    next(run)
    for worker in Pool.of(2).workers.values():
        worker.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            worker.process.wait(timeout=0.2)
    list(run)


@pytest.mark.parametrize("name", ["send", "receive"])
def test_an_interrupt_amid_a_message_costs_a_worker_and_no_bits(name, monkeypatch):
    task = classification()
    run = fedmim.rounds(fedmim.Scaffold(), task, *protocol())
    next(run)
    whole = getattr(Line, name)

    def interrupted(self, *words):
        monkeypatch.undo()
        if name == "receive":
            self._read(4)  # half of the head
        else:
            self._end.sendall(b"half")
        raise KeyboardInterrupt

    before = {worker.process.pid for worker in Pool.of(2).workers.values()}
    monkeypatch.setattr(Line, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    assert getattr(Line, name) is whole
    list(run)
    assert len(before - {worker.process.pid for worker in Pool.of(2).workers.values()}) == 1
    expected = fedmim.simulate(fedmim.Scaffold(), task, *protocol(engine="serial"))
    assert torch.equal(run.params, expected.params)
