"""Sweeps: nothing is repeated, a failure stops nothing else, a kill loses nothing."""

import csv
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from fedmim.algorithms import Algorithm
from fedmim.cli import main
from fedmim.errors import BusyError, UserError
from fedmim.experiments.archive import Archive
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.sweep import Sweep, unfinished
from fedmim.files import LOCK


def run_of(method="fedavg", **settings):
    small = {"rounds": 3, "clients": 10, "local_epochs": 1, "model": "logistic"}
    return Run.make(method, defaults("digits") | small | settings)


class Watch:
    """Counts the rounds of each run."""

    def __init__(self, stop_at=None):
        self.rounds = Counter()
        self.skipped = Counter()
        self.stop_at = stop_at

    def record(self, run, record):
        self.rounds[run.identity()] += 1
        if self.rounds.total() == self.stop_at:
            raise KeyboardInterrupt

    def skip(self, run):
        self.skipped[run.identity()] += 1

    fail = skip


def without_seconds(path):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in RunFolder.open(path).metrics()]


def test_finished_runs_are_not_repeated_and_equal_ones_are_run_once(tmp_path):
    runs = [run_of(), run_of("fedmim"), run_of(), run_of(lr=0.2)]
    sweep, watch = Sweep(tmp_path), Watch()
    assert sweep(runs, watch) == []
    assert sorted(watch.rounds.values()) == [3, 3, 3]
    assert len(list((tmp_path / "runs").iterdir())) == 3
    assert not (tmp_path / "unfinished").exists()
    again = Watch()
    assert sweep([*runs, run_of(seed=1)], again) == []
    assert dict(again.rounds) == {run_of(seed=1).identity(): 3}
    assert again.skipped.total() == 3


def test_a_stopped_sweep_goes_on_where_it_was(tmp_path):
    runs = [run_of("scaffold", seed=seed, rounds=5) for seed in range(3)]
    with pytest.raises(KeyboardInterrupt):
        Sweep(tmp_path / "a")(runs, Watch(stop_at=8))  # in the third round of the second run
    assert [folder.name for folder in (tmp_path / "a" / "unfinished").iterdir()] == [runs[1].name()]
    watch = Watch()
    Sweep(tmp_path / "a")(runs, watch)
    assert watch.rounds[runs[0].identity()] == 0
    assert watch.rounds[runs[1].identity()] == 2
    whole = Sweep(tmp_path / "b")
    whole(runs, Watch())
    for run in runs:
        ended = [without_seconds(tmp_path / folder / "runs" / run.name()) for folder in ("a", "b")]
        assert ended[0] == ended[1]


@dataclass(frozen=True)
class Broken(Algorithm):
    """Fails in its second round."""

    title: ClassVar[str] = "Broken"

    def update(self, state, mean, round):
        if round.number == 1:
            raise RuntimeError("the server is on fire")
        return super().update(state, mean, round)


def test_a_failed_run_is_reported_and_does_not_stop_the_others(tmp_path):
    good = [run_of(seed=1), run_of(seed=2)]
    bad = Run(good[0].method, Broken(), good[0].config, "Broken")
    impossible = run_of(clients=5000)
    failures = Sweep(tmp_path)([good[0], impossible, good[1]], Watch())
    assert [failure.run for failure in failures] == [impossible]
    assert "got 5000" in str(failures[0])
    (failure,) = Sweep(tmp_path / "b")([bad, good[1]], Watch())
    assert str(failure) == "Broken, digits, dirichlet:0.1, seed 1: RuntimeError: the server is on fire"
    assert [path.name for path in (tmp_path / "b" / "runs").iterdir()] == [good[1].name()]


def test_a_run_in_the_hands_of_another_is_left_to_it(tmp_path):
    runs = [run_of(), run_of(seed=1), run_of(seed=2)]
    others = RunFolder.create(tmp_path / "unfinished" / runs[1].name(), runs[1])
    sweep, watch = Sweep(tmp_path), Watch()
    with others.locked():
        (failure,) = sweep(runs, watch)
    assert failure.run == runs[1]
    assert isinstance(failure.error, BusyError)
    assert watch.rounds == {runs[0].identity(): 3, runs[2].identity(): 3}
    assert sweep(runs, watch) == []
    assert watch.rounds[runs[1].identity()] == 3


def test_sweeps_at_once_in_one_folder_share_the_runs(tmp_path):
    runs = [run_of(method, seed=seed, engine="serial") for seed in range(6) for method in ("fedavg", "scaffold")]
    watches = [Watch(), Watch(), Watch()]
    # Threads, though they share torch's random numbers: a lock tells open files apart, not processes.
    with ThreadPoolExecutor(3) as threads:
        failures = list(threads.map(lambda watch: Sweep(tmp_path / "a")(runs, watch), watches))
    assert {type(failure.error) for each in failures for failure in each} <= {BusyError}
    assert sum((watch.rounds for watch in watches), Counter()) == {run.identity(): 3 for run in runs}
    assert all(watch.rounds for watch in watches)
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"runs", LOCK}


def test_models_are_kept_only_when_asked_for(tmp_path):
    Sweep(tmp_path / "a")([run_of()], Watch())
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"runs", LOCK}
    Sweep(tmp_path / "b", keep_models=True)([run_of()], Watch())
    assert [path.name for path in (tmp_path / "b" / "models").iterdir()] == [f"{run_of().name()}.safetensors"]


def test_a_kill_between_archive_and_clean_up_leaves_nothing_behind(tmp_path):
    sweep = Sweep(tmp_path)
    sweep([run_of()], Watch())
    RunFolder.create(tmp_path / "unfinished" / run_of().name(), run_of())
    watch = Watch()
    sweep([run_of()], watch)
    assert watch.rounds.total() == 0
    assert not (tmp_path / "unfinished").exists()


def test_a_folder_that_was_being_made_is_made_anew_and_a_foreign_one_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".config.toml.part").write_text("meth")
    assert unfinished(tmp_path / "a", run_of()).run == run_of()
    with pytest.raises(UserError, match="lr cannot change when a run is resumed"):
        unfinished(tmp_path / "a", run_of(lr=0.3))
    assert unfinished(tmp_path / "a", run_of(workers=2)).run.config.execution.workers == 2


WORDS = [
    "reproduce",
    "table1",
    "--data",
    "digits",
    "--model",
    "logistic",
    "--rounds",
    "40",
    "--eval-every",
    "1",
    "--clients",
    "10",
    "--methods",
    "fedavg,scaffold",
    "--split",
    "dirichlet:0.1,iid",
    "--seeds",
    "0,1",
    "--fair",
    "common",
    "--checkpoint-seconds",
    "0",
    "--out",
]


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "fedmim", *WORDS, str(folder)]


def test_two_commands_at_once_end_in_the_tables_of_one(tmp_path):
    both, one = tmp_path / "both", tmp_path / "one"
    processes = [
        subprocess.Popen(
            [*command(both), "--workers", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in processes:
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0, told
    assert main([*WORDS, str(one)]) == 0
    assert (both / "table1.md").read_text() == (one / "table1.md").read_text()


def test_what_another_process_has_in_hand_is_no_error(tmp_path, capsys):
    words = [*WORDS[: WORDS.index("--rounds")], "--rounds", "2", *WORDS[WORDS.index("--eval-every") :], str(tmp_path)]
    assert main(words) == 0
    taken = next(tmp_path.glob("runs/*scaffold*"))
    others = RunFolder.create(tmp_path / "unfinished" / taken.name, RunFolder.open(taken).run)
    shutil.rmtree(taken)
    with others.locked():
        assert main(words) == 0
    assert "runs in progress in other processes: 1" in capsys.readouterr().err
    assert not taken.exists()


def test_a_sweep_killed_twice_ends_in_the_tables_of_one_that_was_not(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for finished in (1, 4):
        process = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            done = len(list(killed.glob("runs/[a-z]*")))
            if done >= finished and list(killed.glob("unfinished/*/checkpoint.safetensors")):
                break
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in killed.glob("runs/[a-z]*")}
    assert 4 <= len(before) < 8
    assert main([*WORDS, str(killed)]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not (killed / "unfinished").exists()
    assert main([*WORDS, str(whole), "--checkpoint-seconds", "1000"]) == 0
    names = sorted(path.name for path in whole.glob("runs/[a-z]*"))
    assert sorted(path.name for path in killed.glob("runs/[a-z]*")) == names
    assert len(names) == 8
    for name in names:
        assert without_seconds(killed / "runs" / name) == without_seconds(whole / "runs" / name)
    assert (killed / "table1.md").read_text() == (whole / "table1.md").read_text()
    assert (killed / "table1.tex").read_text() == (whole / "table1.tex").read_text()
    tables = [list(csv.DictReader((folder / "table1.csv").read_text().splitlines())) for folder in (killed, whole)]
    for table in tables:
        for row in table:
            row.pop("seconds"), row.pop("seconds_std")
    assert tables[0] == tables[1]


def test_a_run_that_stopped_early_is_archived_and_not_repeated(tmp_path):
    run = run_of(rounds=20, lr=1e-9, patience=2)
    for rounds, watch in ((3, Watch()), (0, Watch())):
        assert Sweep(tmp_path)([run], watch) == []
        assert (watch.rounds.total(), watch.skipped.total()) == (rounds, 1)
    assert len(Archive(tmp_path / "runs").records(run)) == 3
