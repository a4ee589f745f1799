"""The time of each stage of a round.

One process with the allocator settings of a worker; FedAvg and FedMIM take turns, one round each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from benchmarks.workloads import WORKLOADS, Workload
from fedmim import FedAvg, FedMIM, rounds
from fedmim.algorithms import Algorithm
from fedmim.models import FlatModel
from fedmim.simulation import server, training
from fedmim.simulation.child import ALLOCATOR
from fedmim.simulation.mean import StreamingMean
from fedmim.simulation.settings import Engine

STAGES = {
    "gradients": ((FlatModel, "loss_and_gradient"), (FlatModel, "stacked_loss_and_gradient")),
    "clipping": ((training, "clip_factor"),),
    "local steps": ((Algorithm, "step"),),
    "the method's vectors": (
        *((owner, name) for owner in (Algorithm, FedMIM) for name in ("broadcast", "plan", "finish", "update")),
        (training, "with_copies"),
    ),
    "minibatches": ((training, "minibatches"), (training, "gather")),
    "check for non-finite values": ((server, "is_finite"),),
    "mean and client drift": ((StreamingMean, "add"), (StreamingMean, "mean"), (StreamingMean, "consistency")),
}
ROUNDS = {"W1": 5, "W2": 3, "W3": 200}
METHODS = (FedAvg(), FedMIM())


@contextmanager
def timed(seconds: Counter[str]) -> Iterator[None]:
    """Add up the seconds of each stage."""

    def around(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                seconds[stage] += time.perf_counter() - begin

        return wrapper

    patches = [
        patch.object(owner, name, around(stage, getattr(owner, name)))
        for stage, places in STAGES.items()
        for owner, name in places
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def profile(workload: Workload) -> list[dict[str, float]]:
    """The milliseconds that each stage of a round takes, for each method."""
    engine: Engine = "vectorised" if workload.name == "W3" else "serial"
    task, protocol, count = workload.task(), workload.protocol(engine), ROUNDS[workload.name]
    runs = [rounds(method, task, *protocol) for method in METHODS]
    seconds: list[Counter[str]] = [Counter() for _ in runs]
    for number in range(-40 if engine == "vectorised" else -1, count):
        for run, own in zip(runs, seconds, strict=True):
            stages: Counter[str] = Counter()
            with timed(stages):
                begin = time.perf_counter()
                next(run)
                stages["all"] = time.perf_counter() - begin
            if number >= 0:
                own.update(stages)
    return [{name: 1000 * value / count for name, value in each.items()} for each in seconds]


def table() -> str:
    """All workloads and methods side by side."""
    command = [sys.executable, "-m", "benchmarks.stage_times"]
    environment = {**os.environ, **ALLOCATOR}
    return subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def main() -> None:
    """Print the table."""
    found = [each for workload in WORKLOADS.values() for each in profile(workload)]
    print("| ms per round |", " | ".join(f"{name}, {method.title}" for name in WORKLOADS for method in METHODS), "|")
    print("|---" * (1 + len(found)) + "|")
    rest = [each["all"] - sum(each.get(stage, 0.0) for stage in STAGES) for each in found]
    for stage in (*STAGES, "other", "all"):
        values = rest if stage == "other" else [each.get(stage, 0.0) for each in found]
        cells = [f"{spelled(value)} ({value / each['all']:.1%})" for value, each in zip(values, found, strict=True)]
        print(f"| {stage} |", " | ".join(cells), "|")


def spelled(milliseconds: float) -> str:
    """At least three significant digits."""
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


if __name__ == "__main__":
    main()
