"""Set up runs before anything is written, and choose the pool that trains them.

The processes of jobs start meanwhile, if several jobs are likely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from fedmim.errors import UserError
from fedmim.experiments.job_count import Need, choose_jobs, likely_jobs
from fedmim.experiments.jobs import JobPool
from fedmim.experiments.run import Run
from fedmim.experiments.works import ThisProcess, WorkPool
from fedmim.memory import available_memory
from fedmim.simulation.settings import Execution

if TYPE_CHECKING:
    from fedmim.simulation.loop import Rounds


def ready_pool(
    runs: Sequence[Run], asked: int | None, count: int, tell: Callable[[str], None]
) -> tuple[WorkPool, set[str]]:
    """Set up each run once, so that errors in data, model or device show. Returns the pool and the names of engines.

    `count` is the number of runs to train, of these kinds; `asked` of them at once, None for a sensible number. `tell`
    is called with a line if there are fewer because of memory. Use the pool in a `with` block.
    """
    execution = runs[0].config.execution if runs else Execution()
    if execution.ray and execution.engine != "ray":
        pool, engines = ray_pool(execution, asked), {training.engine for training, _ in trainings(runs)}
        return pool, {"serial" if each == "processes" else each for each in engines}
    if execution.engine == "ray" and (asked or 1) > 1:
        raise UserError("jobs: must be 1 with engine ray, which uses the whole cluster for each run; remove --jobs")
    if asked == 1 or count <= 1 or execution.engine == "ray":
        return ThisProcess(), {training.engine for training, _ in trainings(runs)}
    available = available_memory()  # before processes use some of it
    with ExitStack() as started:
        pool = started.enter_context(JobPool(likely_jobs(asked, count, runs)))
        pool.start()
        needs = [Need.of(training, run.config.execution.device) for training, run in trainings(runs)]
        engines = {need.engine for need in needs}
        jobs = choose_jobs(asked, count, needs, available, tell)
        if jobs == 1:
            return ThisProcess(), engines
        pool.resize(jobs)
        started.pop_all()  # the pool ends later
    return pool, {"serial" if engine == "processes" else engine for engine in engines}


def ray_pool(execution: Execution, asked: int | None) -> WorkPool:
    """The pool of the Ray cluster: this many runs at once, None for as many as it has room for."""
    from fedmim.experiments.ray_works import RayWorks
    from fedmim.simulation.ray_cluster import connect, slots

    ray = connect(execution.ray, asked)
    room = slots(ray, execution.gpus_per_worker)
    if not (asked or room):
        raise UserError("ray: the cluster has no CPUs, or fewer GPUs than gpus_per_worker; add nodes")
    return RayWorks(ray, asked or room, execution.gpus_per_worker)


def trainings(runs: Sequence[Run]) -> Iterator[tuple[Rounds, Run]]:
    """Set up runs, one at a time."""
    from fedmim.simulation.loop import rounds

    for run in reversed(runs):  # reversed: the task of the first run stays cached
        yield rounds(run.algorithm, run.config.task(), run.config.settings, run.config.execution), run
