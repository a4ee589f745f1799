"""The time per round of methods relative to FedAvg, from more rounds than in the workload tables."""

from __future__ import annotations

import statistics
import time

import fedmim
from benchmarks.workloads import ENGINES, WORKLOADS, Workload

METHODS = (
    fedmim.FedAvg(),
    fedmim.FedMIM(),
    fedmim.FedCM(),
    fedmim.Scaffold(),
    fedmim.Leap(fedmim.FedAvg()),
    fedmim.Sharp(fedmim.FedAvg()),
)
REPEATS = {"W1": 12, "W2": 10, "W3": 300}
WARM = {"W1": 1, "W2": 1, "W3": 40}


def ratios(workload: Workload) -> list[list[float]]:
    """For each method, the time of its rounds divided by that of the FedAvg round next to them."""
    task, protocol = workload.task(), workload.protocol(ENGINES[workload.name])
    runs = [fedmim.rounds(method, task, *protocol) for method in METHODS]
    for run in runs:
        for _ in range(WARM[workload.name]):
            next(run)
    found: list[list[float]] = [[] for _ in runs]
    for repeat in range(REPEATS[workload.name]):
        seconds = [0.0] * len(runs)
        for place in range(len(runs)):  # rotate which method goes first
            which = (place + repeat) % len(runs)
            begin = time.perf_counter()
            next(runs[which])
            seconds[which] = time.perf_counter() - begin
        for own, each in zip(found, seconds, strict=True):
            own.append(each / seconds[0])
    return found


def table() -> str:
    """All workloads side by side."""
    found = [ratios(workload) for workload in WORKLOADS.values()]
    lines = [f"| median (quartiles) | {' | '.join(WORKLOADS)} |", "|---" * (1 + len(found)) + "|"]
    for place, method in enumerate(METHODS[1:], start=1):
        cells = []
        for each in found:
            low, middle, high = statistics.quantiles(each[place], n=4)
            cells.append(f"{middle:.3f} ({low:.2f} to {high:.2f})")
        lines.append(f"| {method.title} | {' | '.join(cells)} |")
    return "\n".join(lines)
