"""How many runs to train at once: by cores, memory, the number of runs, and whether it is worth starting processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedmim.cores import cores
from fedmim.experiments.run import Run
from fedmim.experiments.run_cost import work_of
from fedmim.memory import in_words
from fedmim.simulation.settings import MOST_WORKERS, at_least

if TYPE_CHECKING:
    from fedmim.simulation.loop import Rounds

JOB_BYTES = 300 << 20  # of a process with PyTorch, without its run
WORTH_JOBS = 20.0  # seconds of serial training of all runs; starting the processes takes about two seconds
EFFICIENCY = 0.85  # of the processes engine: how much of the cores it uses
LIKELY_JOBS = 5000.0  # gradients of all runs; fewer rarely take WORTH_JOBS


@dataclass(frozen=True)
class Need:
    """What a run needs."""

    engine: str  # that `auto` picks for it if it is trained alone
    seconds: float  # of serial training
    memory: int  # bytes
    device: str = "cpu"

    @classmethod
    def of(cls, training: Rounds, device: str) -> Need:
        """The need of a run that has been set up."""
        return cls(training.engine, training.serial_seconds(), JOB_BYTES + training.memory(), device)


def check_jobs(jobs: int | None) -> None:
    """Reject an invalid number of jobs."""
    if jobs is not None:
        at_least("jobs", jobs, 1, most=MOST_WORKERS)


def likely_jobs(asked: int | None, count: int, runs: Sequence[Run]) -> int:
    """How many processes to start before the runs are set up, for `count` runs of these kinds; 0 if in doubt."""
    most = min(asked or cores(), cores(), count)
    quick = count * sum(map(work_of, runs)) / len(runs) < LIKELY_JOBS
    if most < 2 or (asked is None and (quick or any(run.config.execution.device != "cpu" for run in runs))):
        return 0
    return most


def choose_jobs(
    asked: int | None, runs: int, needs: Sequence[Need], available: int | None, tell: Callable[[str], None]
) -> int:
    """The number of runs to train at once, out of this many. `needs` has that of each kind of run.

    `tell` is called with a line if the available memory does not suffice for as many as there would be otherwise.
    """
    wanted = min(asked or _sensible(runs, needs), runs)
    each = max((need.memory for need in needs), default=JOB_BYTES)
    if wanted <= 1 or available is None or wanted * each <= available:
        return max(1, wanted)
    jobs = max(1, available // each)
    tell(
        f"jobs: {jobs} instead of {wanted}, because each needs about {in_words(each)} of memory and "
        f"{in_words(available)} are available"
    )
    return jobs


def _sensible(runs: int, needs: Sequence[Need]) -> int:
    most = min(cores(), runs)
    if not needs or any(need.device != "cpu" for need in needs):
        return 1
    if runs * sum(need.seconds for need in needs) / len(needs) < WORTH_JOBS:
        return 1
    # Worker processes also use all cores, and to the end: with jobs, cores are idle when fewer runs are left than jobs.
    if any(need.engine == "processes" for need in needs) and math.ceil(runs / most) * most * EFFICIENCY > runs:
        return 1
    return most
