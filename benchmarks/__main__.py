"""Measure rounds against the bare limit and against other simulators, and write RESULTS.md.

    python -m benchmarks                      # everything; about an hour
    python -m benchmarks W1 W3 --no-peers     # two workloads, without making the peers' environments
    python -m benchmarks growth profile memory

All candidates of a workload take turns, a round each, so that what else the machine does meets them alike; figures are
ratios of rounds that ran side by side. Sections that are not measured stay in RESULTS.md as they were.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import torch

import fedmim
from benchmarks import growth, memory, where
from benchmarks.bare import Bare
from benchmarks.peers import PEERS, Peer
from benchmarks.workloads import ENGINES, WORKLOADS, Workload

RESULTS = Path(__file__).with_name("RESULTS.md")
REPEATS = {"W1": 8, "W2": 5, "W3": 100}
WARM = {"W1": 2, "W2": 1, "W3": 40}  # rounds before the clock runs: start-up, and what is traced
METHODS = (fedmim.FedAvg(), fedmim.FedMIM(), fedmim.Scaffold(), fedmim.FedCM(), fedmim.FedSAM())
PREFACE = f"""# What a round costs

One round is 10 of 100 clients, evaluation aside, on random data. The bare limit is two single-threaded processes with
stock modules (channels last for images), resident tensors, torch's SGD with weight decay, and nothing else. Candidates
took turns, a round each, on two cores; ratios are medians of rounds side by side, and their quartiles show how much the
machine was disturbed. Peers run in environments of their own, each in its fastest mode. torch {torch.__version__.split("+")[0]}.
"""


def measure(workload: Workload, peers: bool) -> dict[str, list[float]]:
    """Seconds of each round of each candidate."""
    task, engine = workload.task(), ENGINES[workload.name]
    with ExitStack() as stack:
        candidates: dict[str, Callable[[], object]] = {"bare limit": stack.enter_context(closing(Bare(workload)))}
        for method in METHODS:
            candidates[f"{method.title}, {engine}"] = endless(method, task, workload, engine)
        if workload.stock is not None:
            own = workload.task(stock=True)
            candidates[f"FedAvg, {engine}, stock module"] = endless(METHODS[0], own, workload, engine)
        candidates["FedAvg, serial"] = endless(METHODS[0], task, workload, "serial")
        for name in PEERS if peers else ():
            candidates[name] = stack.enter_context(closing(Peer(workload, name)))
        for candidate in candidates.values():
            for _ in range(WARM[workload.name]):
                candidate()
        seconds: dict[str, list[float]] = {name: [] for name in candidates}
        for _ in range(REPEATS[workload.name]):
            for name, candidate in candidates.items():
                begin = time.perf_counter()
                candidate()
                seconds[name].append(time.perf_counter() - begin)
    return seconds
