"""Where the time of a round goes: the stages of a round, timed from within, one process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import fedmim
from benchmarks.workloads import WORKLOADS, Workload
from fedmim.algorithms import Algorithm
from fedmim.models import FlatModel
from fedmim.simulation import loop, training
from fedmim.simulation.mean import StreamingMean

STAGES = {
    "gradients": ((FlatModel, "loss_and_gradient"), (FlatModel, "stacked_loss_and_gradient")),
    "clipping": ((training, "clip_factor"),),
    "local steps": ((Algorithm, "step"),),
    "minibatches": ((training, "minibatches"), (training, "gather")),
    "looking for what is not finite": ((loop, "is_finite"),),
    "mean and consistency": ((StreamingMean, "add"), (StreamingMean, "mean"), (StreamingMean, "consistency")),
}
ROUNDS = {"W1": 3, "W2": 2, "W3": 200}


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


def shares(workload: Workload) -> dict[str, float]:
    """The part of a round's time that each stage takes, FedMIM."""
    engine = "vectorised" if workload.name == "W3" else "serial"
    run = fedmim.rounds(fedmim.FedMIM(), workload.task(), workload.settings(engine))
    for _ in range(1 if engine == "serial" else 40):
        next(run)
    seconds: Counter[str] = Counter()
    with timed(seconds):
        begin = time.perf_counter()
        for _ in range(ROUNDS[workload.name]):
            next(run)
        whole = time.perf_counter() - begin
    return {**{stage: seconds[stage] / whole for stage in STAGES}, "all else": 1 - seconds.total() / whole}


def table() -> str:
    """All workloads side by side."""
    found = {name: shares(workload) for name, workload in WORKLOADS.items()}
    lines = [f"| | {' | '.join(found)} |", "|---" * (1 + len(found)) + "|"]
    for stage in (*STAGES, "all else"):
        row = " | ".join(f"{100 * each[stage]:.1f} %" for each in found.values())
        lines += [f"| {stage} | {row} |"]
    return "\n".join(lines)
