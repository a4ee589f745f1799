"""Ctrl-C and SIGTERM: a command ends with a checkpoint, its own exit code and one true line; nothing is torn."""

import shlex
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module

import pytest
from problems import classification
from worker_runs import assert_same_bits, finished, heed, protocol, soon

import fedmim
from fedmim.cli import main
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.signals import Terminated, held, terminable
from fedmim.simulation import checkpoint
from fedmim.simulation.client_state import ClientState

SMALL = ["--clients", "20", "--local-epochs", "1", "--model", "logistic"]
LONG = [*SMALL, "--rounds", "100000"]
GRID = ["--data", "digits", "--methods", "fedavg", "--split", "iid", "--seeds", "0", "--fair", "common"]
COMMANDS = {
    "run": ["run", *LONG],
    "compare": ["compare", "--methods", "fedavg,fedmim", *LONG],
    "tune": ["tune", "fedavg", "--trials", "2", *LONG],
    "reproduce": ["reproduce", "table1", *GRID, *LONG],
}


def interrupted(words, out, number, signals=1):
    """A command that gets a signal once it has trained some rounds: its exit code and the last line it printed."""
    command = [sys.executable, "-m", "fedmim", *words, "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed) as process:
        assert soon(lambda: any(path.stat().st_size > 1000 for path in out.rglob("metrics.jsonl")))
        for _ in range(signals):
            process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    return process.returncode, errors.splitlines()[-1]


@pytest.mark.parametrize("name", COMMANDS)
def test_sigterm_saves_a_checkpoint_and_says_how_to_resume(name, tmp_path):
    out = tmp_path / "out"
    code, line = interrupted(COMMANDS[name], out, signal.SIGTERM)
    assert code == 128 + 15
    resumes = (
        f"`fedmim {name} --resume --out {out}` resumes" if name in ("run", "compare") else "the same command resumes"
    )
    assert line == f"fedmim: stopped; {resumes} it"
    checkpoints = list(out.rglob("checkpoint.safetensors"))
    assert checkpoints
    for saved in checkpoints:  # several if the machine has several cores
        rounds = checkpoint.Checkpoint.load(saved).server.round
        assert rounds == len((saved.parent / "metrics.jsonl").read_text().splitlines())  # the last round is saved


@pytest.mark.parametrize("signals", [1, 3])
def test_an_interrupt_and_further_ones_leave_a_run_that_the_printed_command_resumes(signals, tmp_path):
    out = tmp_path / "the run"
    code, line = interrupted(COMMANDS["run"], out, signal.SIGINT, signals)
    assert code == 128 + 2
    command = shlex.split(line.split("`")[1])
    assert command == ["fedmim", "run", "--resume", "--out", str(out)]
    done = len(RunFolder.open(out).metrics())
    assert main([*command[1:], "--rounds", str(done + 2), "--quiet"]) == 0
    assert main(["run", *SMALL, "--rounds", str(done + 2), "--quiet", "--out", str(tmp_path / "whole")]) == 0
    models = [(folder / "model.safetensors").read_bytes() for folder in (out, tmp_path / "whole")]
    assert models[0] == models[1]


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
@pytest.mark.parametrize("command", ["run", "compare"])
def test_nothing_is_promised_before_there_is_something_to_resume(command, stop, code, tmp_path, monkeypatch, capsys):
    def check_runs(*_):
        raise stop

    monkeypatch.setattr(f"fedmim.commands.{command}.check_runs", check_runs)
    assert main([command, *SMALL, "--out", str(tmp_path / "a")]) == code
    assert capsys.readouterr().err == "fedmim: stopped\n"
    assert not (tmp_path / "a").exists()


def test_an_interrupt_amid_the_end_of_a_round_waits_until_it_has_ended(monkeypatch):
    commit = ClientState.commit

    def interrupted_commit(self):
        commit(self)
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)  # the states of the clients have moved on, that of the server not yet

    task = classification()
    run = fedmim.rounds(fedmim.Scaffold(), task, *protocol(engine="serial"))
    monkeypatch.setattr(ClientState, "commit", interrupted_commit)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    assert run.state.round == 1
    list(run)
    other, records = finished(fedmim.Scaffold(), task, engine="serial")
    assert_same_bits((run, records), (other, records))


def test_an_interrupt_between_a_round_and_its_record_loses_neither(tmp_path, monkeypatch):
    task = fedmim.Task.named("digits", split="iid", clients=20, model="logistic", seed=0)
    values = defaults("digits") | {"rounds": 4, "clients": 20, "local_epochs": 1, "split": "iid", "model": "logistic"}
    run = Run.make("scaffold", values)
    commit = ClientState.commit

    def interrupted_commit(self):
        commit(self)
        if len(list(folder.metrics())) == 2:
            monkeypatch.undo()
            signal.raise_signal(signal.SIGINT)

    folder = RunFolder.create(tmp_path / "a", run)
    monkeypatch.setattr(ClientState, "commit", interrupted_commit)
    with pytest.raises(KeyboardInterrupt):
        folder.train(task)
    assert [record["round"] for record in folder.metrics()] == [1, 2, 3]
    assert checkpoint.Checkpoint.load(folder.path / checkpoint.CHECKPOINT_FILE).server.round == 3
    RunFolder.open(folder.path).train(task)
    whole = RunFolder.create(tmp_path / "b", run)
    whole.train(task)
    assert [record["train_loss"] for record in folder.metrics()] == [record["train_loss"] for record in whole.metrics()]
    assert (folder.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


def test_what_is_held_back_comes_at_the_end_of_the_outermost_block():
    done = []

    def work():
        with held():
            with held():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_sigterm_is_held_back_where_it_is_handled():
    done = []

    def work():
        with terminable(), held():
            signal.raise_signal(signal.SIGTERM)
            done.append("whole")

    with pytest.raises(Terminated):
        work()
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_programs_own_is_kept():
    came = []
    before = signal.signal(signal.SIGTERM, lambda *_: came.append("mine"))
    try:
        with terminable():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == ["mine"]


def test_other_threads_may_hold_back_nothing_and_train_all_the_same():
    done = []

    def work():
        with terminable(), held():
            done.append(fedmim.simulate(fedmim.FedAvg(), classification(), *protocol(engine="serial", rounds=1)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(done) == 1


def swallowed(number):
    with suppress(BaseException):  # as around imports in some libraries
        signal.raise_signal(number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_a_library_swallowed_before_it_failed_still_ends_the_command(
    number, code, tmp_path, monkeypatch, capsys
):
    def check_runs(*_):
        swallowed(number)
        raise AttributeError("a module that is half imported")

    monkeypatch.setattr("fedmim.commands.run.check_runs", check_runs)
    assert main(["run", *SMALL, "--out", str(tmp_path / "a")]) == code
    assert capsys.readouterr().err == "fedmim: stopped\n"


def test_a_signal_that_a_library_swallowed_ends_the_run_with_its_round(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedmim.simulation.loop.evaluate", lambda *_: swallowed(signal.SIGTERM) or (1.0, 0.5))
    assert main(["run", *SMALL, "--rounds", "5", "--quiet", "--out", str(tmp_path / "a")]) == 143
    assert "resumes it" in capsys.readouterr().err
    assert len(RunFolder.open(tmp_path / "a").metrics()) == 1
    assert (tmp_path / "a" / "checkpoint.safetensors").exists()
    monkeypatch.undo()
    assert main(["run", "--resume", "--quiet", "--out", str(tmp_path / "a")]) == 0
    assert main(["run", *SMALL, "--rounds", "5", "--quiet", "--out", str(tmp_path / "b")]) == 0
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert models[0] == models[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_an_import_waits_until_the_module_is_whole(number, code, tmp_path, monkeypatch, capsys):
    name = f"slow_module_{code}"
    (tmp_path / f"{name}.py").write_text(f"import signal\nsignal.raise_signal({int(number)})\nWHOLE = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    def check_runs(*_):
        whole.append(import_module(name).WHOLE)
        assert soon(lambda: False)  # the signal comes again meanwhile

    whole = []
    monkeypatch.setattr("fedmim.commands.run.check_runs", check_runs)
    assert main(["run", *SMALL, "--out", str(tmp_path / "a")]) == code
    assert capsys.readouterr().err == "fedmim: stopped\n"
    assert whole == [True]
