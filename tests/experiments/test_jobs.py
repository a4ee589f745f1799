"""Several runs at once: the same bits, no run stops another, nothing is left behind, memory is planned."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from worker_runs import group_members, heed, soon

from fedmim.algorithms import Algorithm
from fedmim.cli import main
from fedmim.cores import cores
from fedmim.errors import BusyError, UserError
from fedmim.experiments.config import defaults
from fedmim.experiments.folder_work import FolderWork
from fedmim.experiments.jobs import JobPool
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.sweep import Sweep
from fedmim.experiments.works import LostJobError, ThisProcess, answers_of, failures_of
from fedmim.files import folder_lock, holding

SMALL = {"rounds": 4, "clients": 10, "local_epochs": 1, "model": "logistic"}
WORDS = ["--data", "digits", "--clients", "10", "--participation", "0.3", "--local-epochs", "1", "--quiet"]


def run_of(method="fedavg", label=None, **settings):
    return Run.make(method, defaults("digits") | SMALL | settings, label)


class Watch:
    """Notes the rounds and the skipped runs by label."""

    def __init__(self):
        self.rounds, self.skipped = {}, []

    def record(self, run, record):
        self.rounds.setdefault(run.label, []).append(record.round)

    def skip(self, run):
        self.skipped.append(run.label)

    fail = skip


@dataclass(frozen=True)
class Broken(Algorithm):
    """Fails in its second round; a negative `code` kills its process."""

    title: ClassVar[str] = "Broken"
    code: int = 0

    def update(self, state, mean, round):
        if round.number == 1 and self.code:
            os.kill(os.getpid(), -self.code)
        if round.number == 1:
            raise RuntimeError("the server is on fire")
        return super().update(state, mean, round)


def broken(label, code=0):
    good = run_of(label=label)
    return Run(good.method, Broken(code), good.config, label)


def work_of(folder, run):
    return FolderWork(RunFolder.create(folder / run.label, run).path, run, 10.0)


def records_of(folder):
    """The records of all runs below a folder without their times, and the models."""
    found = {}
    for path in sorted(folder.rglob("metrics.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        model = path.with_name("model.safetensors")
        found[path.parent.name] = (
            [{name: value for name, value in line.items() if name != "seconds"} for line in lines],
            model.read_bytes() if model.exists() else b"",
            path.with_name("config.toml").read_bytes(),
        )
    return found


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Drawing takes longer than these runs."""
    monkeypatch.setattr("fedmim.report.page.write_page", lambda *_: None)
    monkeypatch.setattr("fedmim.report.comparison_plot.comparison_plot", lambda *_: None)


def without_seconds(value):
    """Results without what depends on the time."""
    if isinstance(value, dict):
        return {name: without_seconds(each) for name, each in value.items() if "seconds" not in name}
    return [without_seconds(each) for each in value] if isinstance(value, list) else value


def test_a_comparison_has_the_same_bits_for_any_number_of_jobs(tmp_path):
    words = ["compare", "--methods", "fedavg,scaffold", "--seeds", "0,1", "--rounds", "3", *WORDS]
    tables = []
    for jobs in (1, 2, 3):
        out = tmp_path / str(jobs)
        assert main([*words, "--jobs", str(jobs), "--model", "mlp", "--out", str(out)]) == 0
        tables.append(without_seconds(json.loads((out / "results.json").read_text())))
    one, two, three = (records_of(tmp_path / str(jobs)) for jobs in (1, 2, 3))
    assert len(one) == 4
    assert one == two == three
    assert tables[0] == tables[1] == tables[2]


def test_a_run_with_the_processes_engine_is_the_same_in_a_job(tmp_path):
    words = ["compare", "--methods", "fedavg,feddyn", "--rounds", "2", "--model", "cnn", "--batch-size", "16", *WORDS]
    for jobs in ("1", "2"):
        out = str(tmp_path / jobs)
        assert main([*words, "--engine", "processes", "--workers", "2", "--jobs", jobs, "--out", out]) == 0
    assert records_of(tmp_path / "1") == records_of(tmp_path / "2")


def test_a_failed_and_a_killed_run_are_reported_and_stop_no_other(tmp_path):
    runs = [broken("fire"), run_of(label="a"), broken("killed", -9), run_of(label="b"), run_of(label="c", seed=1)]
    watch = Watch()
    with JobPool(2) as pool:
        failures = failures_of([work_of(tmp_path, run) for run in runs], pool, watch)
    assert [failure.run.label for failure in failures] == ["fire", "killed"]
    assert "RuntimeError: the server is on fire" in str(failures[0])
    assert isinstance(failures[1].error, LostJobError)
    assert "was killed by SIGKILL; if memory is short, lower --jobs" in str(failures[1])
    assert sorted(watch.skipped) == ["fire", "killed"]
    assert [watch.rounds[label] for label in ("a", "b", "c")] == [[1, 2, 3, 4]] * 3


OWN = """
from dataclasses import dataclass
from typing import ClassVar

from fedmim import Algorithm


@dataclass(frozen=True)
class Broken(Algorithm):
    title: ClassVar[str] = "Broken"

    def update(self, state, mean, round):
        raise RuntimeError("no update today")


class Notes:
    def on_start(self, run):
        self.file = open(run.name + ".txt", "a")

    def on_round(self, run, record):
        print(run.name, record.round, file=self.file)

    def on_end(self, run):
        self.file.close()
"""


def test_the_command_reports_failed_runs_and_shows_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    words = ["compare", "--methods", "fedavg,own.py:Broken,fedmim", "--rounds", "3", "--model", "logistic", *WORDS]
    assert main([*words, "--jobs", "2", "--callback", "own.py:Notes", "--out", "a"]) == 2
    *_, line, last = capsys.readouterr().err.splitlines()
    assert line == "fedmim: Broken, digits, dirichlet:0.1, seed 0: RuntimeError: no update today"
    assert last == "fedmim: 1 failed; `fedmim compare --resume --out a` retries them"
    assert [each["label"] for each in json.loads(Path("a/results.json").read_text())["methods"]] == ["FedAvg", "FedMIM"]
    for name in ("fedavg-seed0", "fedmim-seed0"):  # each process has its own callback
        assert Path(f"{name}.txt").read_text().splitlines() == [f"{name} {number}" for number in (1, 2, 3)]


def test_a_sweep_has_the_same_runs_and_shares_them_with_another_command(tmp_path):
    runs = [run_of("fedavg"), run_of("fedmim"), run_of("scaffold"), run_of("fedmim", seed=1)]
    Sweep(tmp_path / "one")(runs, Watch())
    sweep = Sweep(tmp_path / "two", keep_models=True)
    others = RunFolder.create(tmp_path / "two" / "unfinished" / runs[1].name(), runs[1])
    with JobPool(2) as pool:
        with others.locked():
            (failure,) = failures_of(sweep.works(runs), pool, Watch())
        assert isinstance(failure.error, BusyError)
        assert failure.run.label == "FedMIM"
        watch = Watch()
        assert failures_of(sweep.works(runs), pool, watch) == []
    assert sorted(watch.skipped) == ["FedAvg", "FedMIM", "SCAFFOLD"]
    assert watch.rounds == {"FedMIM": [1, 2, 3, 4]}
    assert records_of(tmp_path / "one" / "runs") == records_of(tmp_path / "two" / "runs")
    assert len(list((tmp_path / "two" / "models").iterdir())) == 4


def test_with_one_job_the_work_is_done_here(tmp_path):
    works = [work_of(tmp_path, run) for run in (broken("fire"), run_of(label="a"))]
    watch, pool = Watch(), ThisProcess()
    answers = [(work.run.label, str(answer)) for work, answer in answers_of(works, pool, watch)]
    assert answers == [("fire", "the server is on fire"), ("a", "None")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_signal_ends_all_jobs_and_the_comparison_resumes_to_the_same_bits(number, code, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    words = ["compare", "--methods", "fedavg,scaffold", "--model", "logistic", *WORDS]
    command = [sys.executable, "-m", "fedmim", *words, "--rounds", "100000", "--jobs", "2", "--out", str(out)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stderr=pipe, text=True, preexec_fn=heed, start_new_session=True) as process:
        started = ("fedavg-seed0", "scaffold-seed0")
        files = [out / name / "metrics.jsonl" for name in started]
        assert soon(lambda: all(path.exists() and path.stat().st_size > 2000 for path in files))
        assert len(group_members(process.pid)) == 3
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert soon(lambda: not group_members(process.pid))
    if number != signal.SIGKILL:
        assert errors.splitlines() == [f"fedmim: stopped; `fedmim compare --resume --out {out}` resumes it"]
        assert all((out / name / "checkpoint.safetensors").exists() for name in started)
    done = max(len(RunFolder.open(out / name).metrics()) for name in started) + 1
    assert main(["compare", "--resume", "--out", str(out), "--rounds", str(done), "--quiet", "--jobs", "2"]) == 0
    assert main([*words, "--rounds", str(done), "--jobs", "1", "--out", str(whole)]) == 0
    assert records_of(out) == records_of(whole)


def test_another_command_is_kept_out_of_a_comparison_and_out_of_a_run(tmp_path, capsys):
    words = ["compare", "--methods", "fedavg,fedmim", "--rounds", "2", "--model", "logistic", *WORDS, "--jobs", "2"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    more = ["compare", "--resume", "--rounds", "3", "--quiet", "--jobs", "2", "--out", str(tmp_path)]
    with holding(folder_lock(tmp_path)):
        assert main(more) == 2
    assert "another process is using this folder" in capsys.readouterr().err
    with holding(folder_lock(tmp_path / "fedavg-seed0")):
        assert main(more) == 2
    assert "1 failed" in capsys.readouterr().err
    assert len(RunFolder.open(tmp_path / "fedmim-seed0").metrics()) == 3
    assert main(more) == 0


@pytest.mark.parametrize("command", ["compare", "tune fedavg", "reproduce table1"])
@pytest.mark.parametrize("jobs", ["0", "-1", "5000"])
def test_a_wrong_number_of_jobs_is_one_line(command, jobs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--jobs", jobs]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedmim: jobs: must be a whole number of at ")
    assert not list(tmp_path.iterdir())


def test_a_work_that_cannot_be_sent_says_so(tmp_path):
    work = FolderWork(tmp_path, run_of(), 1.0, (lambda: (yield))())  # a generator cannot be pickled
    with JobPool(2) as pool:
        (failure,) = failures_of([work], pool, Watch())
    assert isinstance(failure.error, UserError)
    assert "use --jobs 1" in str(failure)


def test_a_reproduction_has_the_same_runs_for_any_number_of_jobs(tmp_path, monkeypatch):
    monkeypatch.setattr("fedmim.reproduction.command.write_report", lambda *_: None)
    grid = ["--data", "digits", "--methods", "fedavg,fedmim", "--split", "iid", "--seeds", "0", "--fair", "common"]
    small = ["--rounds", "3", "--clients", "10", "--local-epochs", "1", "--model", "logistic"]
    for jobs in ("1", "2"):
        assert main(["reproduce", "table1", *grid, *small, "--jobs", jobs, "--out", str(tmp_path / jobs)]) == 0
    assert len(records_of(tmp_path / "1")) == 2
    assert records_of(tmp_path / "1") == records_of(tmp_path / "2")


FATAL = """
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedmim import Algorithm


@dataclass(frozen=True)
class Fatal(Algorithm):
    title: ClassVar[str] = "Fatal"

    def update(self, state, mean, round):
        if round.number == 2 and Path("kill").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().update(state, mean, round)
"""


def test_a_run_whose_process_was_killed_resumes_to_the_same_bits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(FATAL)
    Path("kill").touch()
    words = ["compare", "--methods", "fedavg,own.py:Fatal", "--rounds", "4", "--model", "logistic", *WORDS]
    assert main([*words, "--checkpoint-seconds", "0", "--jobs", "2", "--out", "a"]) == 2
    assert "Fatal, digits, dirichlet:0.1, seed 0: jobs: the process" in capsys.readouterr().err
    assert len(RunFolder.open(Path("a/fatal-seed0")).metrics()) == 2
    Path("kill").unlink()
    assert main(["compare", "--resume", "--quiet", "--jobs", "2", "--out", "a"]) == 0
    assert main([*words, "--jobs", "1", "--out", "b"]) == 0
    assert records_of(Path("a")) == records_of(Path("b"))


def test_a_command_that_is_refused_ends_the_processes_that_it_started(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pools = []

    class Noted(JobPool):
        def start(self):
            super().start()
            pools.append([job.child.process for job in self._jobs])

    monkeypatch.setattr("fedmim.experiments.job_start.JobPool", Noted)
    words = ["compare", "--methods", "fedavg,fedmim", "--model", "logistic", *WORDS, "--jobs", "2"]
    assert main([*words, "--min-replies", "100"]) == 2
    assert "min_replies" in capsys.readouterr().err
    ((*processes,),) = pools
    assert len(processes) == min(2, cores())
    assert all(process.returncode is not None for process in processes)
    assert not list(tmp_path.iterdir())
