"""Measure rounds against the bare limit and write RESULTS.md.

    python -m benchmarks              # all workloads; W2 alone takes a quarter of an hour
    python -m benchmarks W1 W3        # some

All candidates of a workload take turns, a round each, so that what else the machine does meets them alike; figures are
ratios of rounds that ran side by side.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import fedmim
from benchmarks.bare import Bare
from benchmarks.workloads import WORKLOADS, Workload

REPEATS = {"W1": 8, "W2": 5, "W3": 200}
ENGINES = {"W1": "processes", "W2": "processes", "W3": "vectorised"}
METHODS = (fedmim.FedAvg(), fedmim.FedMIM(), fedmim.Scaffold(), fedmim.FedCM(), fedmim.FedSAM())


def measure(workload: Workload) -> dict[str, list[float]]:
    """Seconds of each round of each candidate."""
    bare, task, engine = Bare(workload), workload.task(), ENGINES[workload.name]
    candidates: dict[str, Callable[[], object]] = {"bare limit": bare}
    runs = {f"{method.title}, {engine}": fedmim.rounds(method, task, workload.settings(engine)) for method in METHODS}
    runs["FedAvg, serial"] = fedmim.rounds(METHODS[0], task, workload.settings("serial"))
    candidates |= {name: run.__next__ for name, run in runs.items()}
    for candidate in candidates.values():
        for _ in range(2 if workload.name != "W3" else 40):  # start-up, and what is traced
            candidate()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(REPEATS[workload.name]):
        for name, candidate in candidates.items():
            begin = time.perf_counter()
            candidate()
            seconds[name].append(time.perf_counter() - begin)
    bare.close()
    return seconds


def table(workload: Workload, seconds: dict[str, list[float]]) -> str:
    """A Markdown table of medians, and of ratios to the bare limit and to FedAvg on the same engine."""
    average = f"FedAvg, {ENGINES[workload.name]}"
    lines = [
        f"## {workload.name}: {workload.model}, {workload.samples} samples a client, {workload.epochs} epochs of batch "
        f"{workload.batch}, {workload.steps} steps a round",
        "",
        f"`python -m benchmarks {workload.name}`",
        "",
        "| | median s a round | best | speed, of the bare limit's (quartiles) | time, of FedAvg's |",
        "|---|---|---|---|---|",
    ]
    for name, each in seconds.items():
        speed = [bare / own for bare, own in zip(seconds["bare limit"], each, strict=True)]
        low, middle, high = statistics.quantiles(speed, n=4)
        cost = statistics.median(own / base for own, base in zip(each, seconds[average], strict=True))
        times = f"{statistics.median(each):.4g} | {min(each):.4g}"
        lines.append(f"| {name} | {times} | {middle:.2f} ({low:.2f} to {high:.2f}) | {cost:.2f} |")
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Measure the named workloads and write down what was found."""
    results = Path(__file__).with_name("RESULTS.md")
    parts = [
        "# What a round costs\n",
        "One round is 10 of 100 clients, evaluation aside, on random data. The bare limit is two single-threaded "
        "processes with stock modules (channels last for images), resident tensors, torch's SGD with weight decay, and "
        "nothing else. Candidates took turns, a round each, on two cores; ratios are of rounds side by side, and their "
        f"quartiles show how much the machine was disturbed. torch {torch.__version__}, fedmim {fedmim.__version__}.\n",
    ]
    for name in names or list(WORKLOADS):
        part = table(WORKLOADS[name], measure(WORKLOADS[name]))
        print(part, flush=True)
        parts.append(part)
    results.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
