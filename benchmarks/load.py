"""Large loads: 100,000 rounds, a million clients, 10,000 runs in one report. Seconds are CPU seconds.

python -m benchmarks.load rounds      # one part, in a separate process
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import save_file

from fedmim.experiments.config import defaults
from fedmim.experiments.metrics_file import cut_records
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import METRICS, RunFolder
from fedmim.report.page import page
from fedmim.report.watch import Watched
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results
from fedmim.simulation.record import Record

ROUNDS = (10_000, 50_000, 100_000)
CLIENTS = (10_000, 100_000, 1_000_000)
RUNS = (1000, 10_000)
RUN_ROUNDS = 200  # rounds per run of a report
T = TypeVar("T")


def resident_megabytes() -> float:
    """Current memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def timed(work: Callable[..., T], *arguments: object) -> tuple[float, T]:
    """CPU seconds of a call, which other load on the machine does not change, and its result."""
    begin = time.process_time()
    result = work(*arguments)
    return time.process_time() - begin, result


def row(*cells: object) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(map(shown, cells))} |"


def shown(cell: object) -> str:
    """A number with three significant digits, or more if it is at least 1000."""
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.3g}" if cell < 1000 else f"{cell:,.0f}"


def head(*cells: str) -> list[str]:
    """The first two lines of a Markdown table."""
    return [row(*cells), "|---" * len(cells) + "|"]


def rounds(folder: Path, counts: tuple[int, ...] = ROUNDS) -> list[str]:
    """One run with two clients, digits and logistic regression; its records up to each number of rounds."""
    values = defaults("digits") | {"model": "logistic", "clients": 2, "participation": 1.0, "local_steps": 1}
    run = Run.make("fedmim", values | {"eval_every": 1000, "rounds": counts[-1]})
    made, seen = RunFolder.create(folder / "run", run), {0: (time.process_time(), 0.0)}

    def watch(record: Record) -> None:
        if record.round in counts:
            seen[record.round] = time.process_time(), resident_megabytes()

    made.train(run.config.task(), watch)
    resuming, _ = timed(resume, made.path, run.replace(rounds=counts[-1] + 1))
    lines = head(
        "rounds", "ms per round", "MB resident", "MB of records", "s to read them", "s to make a page", "MB of the page"
    )
    for before, count in pairwise([0, *counts]):
        part = RunFolder.create(folder / str(count), run)
        cut_records(shutil.copyfile(made.path / METRICS, part.path / METRICS), count)
        reading, found = timed(load_results, [part])
        making, text = timed(page, group_runs(found))
        pace = 1e3 * (seen[count][0] - seen[before][0]) / (count - before)
        size = (part.path / METRICS).stat().st_size
        lines.append(row(f"{count:,}", pace, seen[count][1], size / 1e6, reading, making, len(text) / 1e6))
    return [*lines, "", f"Resuming after the last round and training one more took {resuming:.1f} s."]


def resume(path: Path, run: Run) -> None:
    """What `fedmim run --resume` does."""
    RunFolder.reopen(path, run).train(run.config.task())


def clients(folder: Path, counts: tuple[int, ...] = CLIENTS) -> list[str]:
    """SCAFFOLD, which keeps state for each client; two samples per client, 20 clients per round."""
    lines = head("clients", "s to set up", "MB resident", "ms per round", "s for 20 rounds", "kB of checkpoint")
    for count in counts:
        data = folder / f"{count}.safetensors"
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2 * count, 8, generator=generator)
        y = torch.randint(0, 10, (2 * count,), generator=generator)
        test = {"x_test": x[:100].clone(), "y_test": y[:100].clone()}
        save_file({"x_train": x, "y_train": y, "client": torch.arange(2 * count) // 2, **test}, data)
        values = {"data": f"tensors:{data}", "split": "natural", "clients": count, "model": "logistic", "rounds": 20}
        run = Run.make("scaffold", defaults("digits") | values | {"participation": 20 / count, "eval_every": 20})
        setting_up, task = timed(run.config.task)
        made = RunFolder.create(folder / f"run-{count}", run)
        paces: list[Record] = []
        training, _ = timed(made.train, task, paces.append)
        size = sum(path.stat().st_size for path in made.path.rglob("*") if path.suffix == ".safetensors") / 1e3
        pace = 1e3 * statistics.median(record.seconds for record in paces)
        lines.append(row(f"{count:,}", setting_up, resident_megabytes(), pace, training, size))
    return lines


def runs(folder: Path, counts: tuple[int, ...] = RUNS) -> list[str]:
    """Folders of runs with 200 rounds each, 100 seeds per learning rate."""
    lines = head(
        "runs", "s to make a page", "MB resident", "MB of the page", "s, first update", "s, next", "s, no change"
    )
    for count in counts:
        base = folder / f"{count}"
        make_runs(base, count)
        seconds, text = timed(page_of, base)
        memory = resident_megabytes()
        watched = Watched([base], None)
        first, _ = timed(watched.news, "first")
        add_round(base / "run-0")
        following, _ = timed(watched.news, "next")
        none, _ = timed(watched.tag)
        lines.append(row(f"{count:,}", seconds, memory, len(text) / 1e6, first, following, none))
    return lines


def page_of(folder: Path) -> str:
    """The page that `fedmim report` writes."""
    return page(group_runs(load_results(find_runs([folder], print))))


def make_runs(folder: Path, count: int) -> None:
    """Create run folders with configurations and records."""
    base = Run.make("fedavg", defaults("digits") | {"rounds": RUN_ROUNDS + 1})
    lines = "".join(record_line(number) for number in range(1, RUN_ROUNDS + 1))
    for number in range(count):
        own = base.replace(seed=number % 100, lr=0.01 * (1 + number // 100))
        made = RunFolder.create(folder / f"run-{number}", own)
        (made.path / METRICS).write_text(lines, encoding="utf-8")


def record_line(number: int) -> str:
    """A line of metrics.jsonl."""
    known = {"test_accuracy": 1 - 1 / number, "test_loss": 1 / number, "train_loss": 1 / number, "consistency": 0.1}
    counted = {"bytes_up": 1000, "bytes_down": 1000, "refused": 0, "seconds": 0.1}
    return json.dumps({"round": number, **known, "lr": 0.1, "clients": list(range(10)), **counted}) + "\n"


def add_round(folder: Path) -> None:
    """Append one record to a run."""
    with (folder / METRICS).open("a", encoding="utf-8") as file:
        file.write(record_line(RUN_ROUNDS + 1))


PARTS: dict[str, Callable[[Path], list[str]]] = {"rounds": rounds, "clients": clients, "runs": runs}


def table() -> str:
    """All three tables, each from a separate process."""
    parts = []
    for name, part in PARTS.items():
        done = subprocess.run([sys.executable, "-m", "benchmarks.load", name], stdout=subprocess.PIPE, check=True)
        parts.append(f"{(part.__doc__ or '').strip()}\n\n{done.stdout.decode().strip()}")
    times = "Seconds are CPU seconds, except the time per round with many clients, which is wall time."
    return "\n\n".join([times, *parts])


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp(prefix="fedmim-load-"))
    try:
        print("\n".join(PARTS[sys.argv[1]](place)))
    finally:
        shutil.rmtree(place, ignore_errors=True)
