"""The cost of runs relative to each other, known before anything is loaded, and the order in which to start them."""

from __future__ import annotations

from collections.abc import Sequence

from fedmim.experiments.run import Run
from fedmim.experiments.sources import AnySource


def work_of(run: Run) -> float:
    """The approximate work of all rounds, in gradients."""
    return run.config.settings.rounds * work_per_round(run)


def work_per_round(run: Run) -> float:
    """The approximate work per round, relative to other runs."""
    config = run.config
    settings = config.settings
    local = settings.local_work.mean * (settings.local_steps or settings.local_epochs * 10)
    return settings.participation * config.problem.clients * local * run.algorithm.gradients + 1


def longest_first(runs: Sequence[Run]) -> list[int]:
    """The order in which to start runs of which several are trained at once, as indices.

    Data sets and seeds are in the order given, so that one is complete before the next. In each, the longest run starts
    first: a long one at the end would train alone.
    """
    groups = [(source_of(run), run.config.settings.seed) for run in runs]
    place = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return sorted(range(len(runs)), key=lambda index: (place[groups[index]], -work_of(runs[index])))


def source_of(run: Run) -> AnySource:
    """Where the data of a run comes from."""
    return run.config.problem.source(run.config.settings.seed, run.config.execution.data_dir)
