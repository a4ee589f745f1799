"""Kill commands at random times and during writes, fill their disk, resume, and compare the results bit for bit.

    python -m benchmarks kills --instants 500 --seed 0

Each trial is a fork of this process, which has already imported torch. A trial ends in a kill or an error. Then the
command is resumed until it succeeds, and its files must be bit-identical to those of an undisturbed command.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults import KILL, Faults

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
ERRORS = {"ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EROFS": errno.EROFS, "EIO": errno.EIO}
SMALL = ("--rounds", "4", "--clients", "6", "--participation", "0.5", "--local-steps", "2", "--model", "logistic")
GRID = ("table1", "--data", "digits", "--methods", "fedavg,scaffold", "--split", "iid", "--seeds", "0")
STATEFUL = ("scaffold", "feddyn")
MOST_RESUMES = 30

Kill = tuple[float, int]  # seconds until the kill, and the signal


@dataclass(frozen=True)
class Command:
    """A command line with its own folder."""

    words: tuple[str, ...]
    made: str = ""  # once this file exists, resume with --resume; empty: with the same words

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.words[0]

    @property
    def operations(self) -> int:
        """The approximate number of its file operations."""
        return 80 if self.name == "run" else 250

    def line(self, out: Path) -> list[str]:
        """The words that start or resume it."""
        if self.made and (out / self.made).exists():
            return [self.name, "--resume", "--quiet", "--checkpoint-seconds", "0", "--out", str(out)]
        return [*self.words, "--out", str(out)]


def commands(engine: str) -> Iterator[Command]:
    """All commands at the smallest scale, with one engine."""
    from fedmim.algorithms import METHODS

    common = [*SMALL, "--engine", engine, "--workers", "1"]
    often = ["--checkpoint-seconds", "0"]
    for method in METHODS:
        yield Command(("run", "--method", method, *common, *often, "--quiet"), "config.toml")
    pairs = ["fedavg,scaffold", "fedmim,feddyn"]
    for pair in pairs:
        yield Command(("compare", "--methods", pair, "--seeds", "0,1", *common, *often, "--quiet"), "comparison.toml")
    for method in STATEFUL:
        yield Command(("tune", method, "--trials", "2", *common))
    yield Command(("reproduce", *GRID, "--fair", "common", *common, *often))


@dataclass
class Lab:
    """Runs trials and counts the results."""

    folder: Path
    random: random.Random
    done: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, command)
    hit: Counter[str] = field(default_factory=Counter)  # number of trials that hit the command while it ran
    resumes: int = 0
    found: list[str] = field(default_factory=list)
    _whole: dict[Command, tuple[dict[str, bytes], float]] = field(default_factory=dict)

    @property
    def faults(self) -> int:
        """The number of trials with failed writes."""
        return sum(count for (kind, _), count in self.done.items() if kind in ERRORS)

    def run(self, words: list[str], log: Path, faults: Faults | None = None, kill: Kill | None = None) -> int:
        """Run a command in a fork; returns its exit code, or minus the signal that ended it."""
        child = os.fork()
        if child == 0:
            _run_here(words, log, faults)
        if kill is not None:
            time.sleep(kill[0])
            os.kill(child, kill[1])  # safe even if it has ended, because it is not yet waited for
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def whole(self, command: Command) -> tuple[dict[str, bytes], float]:
        """The files of an undisturbed command, and the seconds it takes."""
        if command not in self._whole:
            out, begin = self._new("whole"), time.monotonic()
            code = self.run(command.line(out / "out"), out / "log")
            if code:
                raise RuntimeError(f"{' '.join(command.words)} ended with {code}:\n{(out / 'log').read_text()}")
            self._whole[command] = content(out / "out"), time.monotonic() - begin
            shutil.rmtree(out)
        return self._whole[command]

    def trial(self, kind: str, command: Command, number: int = 0) -> bool:
        """One kill or fault, then resume to the end; returns whether it hit the command while it ran."""
        whole, seconds = self.whole(command)
        out = self._new("trial")
        place, log = out / "out", out / "log"
        faults = kill = None
        if kind in SIGNALS:
            kill = self.random.random() * seconds, SIGNALS[kind]
        else:
            faults = Faults(place, number, ERRORS.get(kind, KILL))
        code = self.run(command.line(place), log, faults, kill)
        met = code != 0
        for attempt in range(MOST_RESUMES):
            if code == 0:
                break
            self.resumes += 1
            again = kill and attempt == 0 and self.random.random() < 1 / 3  # kill it while it resumes
            code = self.run(command.line(place), log, kill=kill if again else None)
        self.done[kind, command.name] += 1
        self.hit[kind] += met
        if sum(self.done.values()) % 50 == 0:
            print(f"{sum(self.done.values())} trials", file=sys.stderr, flush=True)
        if problem := self._problem(code, place, whole, log):
            self.found.append(f"{kind} {number or ''} {' '.join(command.words)}: {problem}")
            print(self.found[-1], flush=True)
        else:
            shutil.rmtree(out)
        return met

    def _problem(self, code: int, out: Path, whole: dict[str, bytes], log: Path) -> str:
        told = log.read_text(errors="replace")
        if code:
            return f"does not resume, exit code {code}: {told.strip().splitlines()[-1:]} ({out})"
        if "Traceback" in told:
            return f"a traceback ({log})"
        if nameless := [line for line in _error_lines(told) if str(out) not in line]:
            return f"an error that names no file: {nameless}"
        if parts := [str(path.relative_to(out)) for path in out.rglob("*.part")]:
            return f"left behind: {parts}"
        now = content(out)
        if differ := sorted(name for name in whole | now if whole.get(name) != now.get(name)):
            return f"not the same: {differ} ({out})"
        return ""

    def _new(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))


def _run_here(words: list[str], log: Path, faults: Faults | None) -> None:
    """In a fork: run a command with its output in a file, and exit."""
    code = 70
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1), os.dup2(handle, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if faults:
            faults.install()
        from fedmim.cli import main

        code = main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # without the parent's exit handlers


def _error_lines(told: str) -> list[str]:
    strings = [os.strerror(number) for number in ERRORS.values()]
    return [line for line in told.splitlines() if any(text in line for text in strings)]


def content(out: Path) -> dict[str, bytes]:
    """The files of a command that must not depend on kills: without times, pictures and the older checkpoint."""
    found = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        name, text = str(path.relative_to(out)), path.read_bytes()
        if path.name in (".lock", "journal.log", "checkpoint.previous.safetensors") or path.suffix in (".html", ".svg"):
            continue
        if path.suffix == ".png":
            text = b"there"
        if path.parent.name == "clients":
            name = name.rpartition("-")[0]  # keep the newest state of each client, which comes last
        if path.suffix in (".json", ".jsonl"):
            text = re.sub(rb'"seconds": ?[0-9.e+-]+', b"", text)
        if path.suffix in (".md", ".csv", ".tex") and path.name != "trials.csv":
            text = b"there"  # has columns of seconds; the underlying runs are compared
        found[name] = text
    return found


def harness(instants: int, faults: int, seed: int, engines: list[str]) -> Lab:
    """Run this many kills, three at random times to one during a write, and this many failed writes."""
    import_all()
    with tempfile.TemporaryDirectory(prefix="kills-", dir=memory(), ignore_cleanup_errors=True) as place:
        lab = Lab(Path(place).resolve(), random.Random(seed))
        choices = [command for engine in engines for command in commands(engine)]
        kinds = [*SIGNALS, "kill in a write"]
        for number in range(instants):
            kind, command = kinds[number % len(kinds)], lab.random.choice(choices)
            lab.trial(kind, command, lab.random.randint(1, command.operations))
        every = next(command for command in choices if "scaffold" in command.words)  # fail at each of its operations
        for kind in ERRORS:
            number = 1
            while lab.faults < faults // 2 and lab.trial(kind, every, number):
                number += 1
        while lab.faults < faults:  # the others at random operations
            command = lab.random.choice(choices)
            lab.trial(lab.random.choice(list(ERRORS)), command, lab.random.randint(1, command.operations))
        return lab


def import_all() -> None:
    """Import what the commands import, once for all forks."""
    import importlib
    import pkgutil

    import torch

    import fedmim

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(fedmim.__path__, "fedmim."):
        if not module.name.startswith(("fedmim.flower", "fedmim.__main__", "fedmim.simulation.worker")):
            importlib.import_module(module.name)
    for name in ("optuna", "sklearn.datasets", "matplotlib.pyplot", "plotly.offline", "rich.live", "torch._dynamo"):
        importlib.import_module(name)


def memory() -> Path | None:
    """A disk in memory, if there is one: the trials test the order of writes, not the speed of a disk."""
    place = Path("/dev/shm")
    return place if os.access(place, os.W_OK) else None


def text_of(lab: Lab) -> str:
    """The results as a Markdown table."""
    names = sorted({name for _, name in lab.done})
    lines = [f"| | {' | '.join(names)} | while it ran |", "|---" * (len(names) + 2) + "|"]
    for kind in [*SIGNALS, "kill in a write", *ERRORS]:
        if any(each == kind for each, _ in lab.done):
            cells = " | ".join(str(lab.done[kind, name]) for name in names)
            lines.append(f"| {kind} | {cells} | {lab.hit[kind]} |")
    bad = f"{len(lab.found)} did not end like an undisturbed command"
    lines += ["", f"{sum(lab.done.values())} trials, resumed {lab.resumes} times; {bad}."]
    return "\n".join([*lines, *(f"- {each}" for each in lab.found)])


def table(instants: int, seed: int) -> str:
    """The results of this many kills and failed writes, from a separate process without threads."""
    words = [sys.executable, "-m", "benchmarks.kills", "--instants", str(instants), "--seed", str(seed)]
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([*words, "--faults", str(instants)], env=os.environ | one, stdout=subprocess.PIPE, text=True)
    return f"{done.stdout.strip()}\n\n`python -m benchmarks kills --instants {instants} --seed {seed}`"


def main(words: list[str] | None = None) -> int:
    """Run the harness and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--instants", type=int, default=500)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", default="serial,vectorised,processes")
    asked = parser.parse_args(words)
    lab = harness(asked.instants, asked.faults, asked.seed, asked.engines.split(","))
    print(text_of(lab))
    return 1 if lab.found else 0


if __name__ == "__main__":
    sys.exit(main())
