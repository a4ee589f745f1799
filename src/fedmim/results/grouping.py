"""Group runs that can be compared: first by problem, then by label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from fedmim.errors import UserError
from fedmim.experiments.comparison import Comparison
from fedmim.experiments.config import NOT_COMPARED, Config, Problem, target_of
from fedmim.results.method_results import MethodResults, RunResult, by_label

# Runs that differ in the data, the split, the model or the work per round belong to different problems. Runs of one
# label that differ in any other setting are variants of the method.
WORK = ("participation", "local_epochs", "local_steps", "batch_size", "drop_last", "weighting")
PROBLEM = (*(field.name for field in fields(Problem)), *WORK)  # data and split come first


@dataclass(frozen=True)
class RunGroup:
    """Runs that can be compared with each other."""

    facets: tuple[str, ...]  # the settings that distinguish this group from other groups on the same data
    target: float | None  # the target accuracy of rounds_to_target and bytes_to_target
    lines: tuple[MethodResults, ...]  # for each label, the runs with the most rounds, and those that ended earlier
    behind: tuple[RunResult, ...]  # runs with fewer rounds than other runs of their label
    waiting: tuple[RunResult, ...]  # runs without any round so far

    @property
    def runs(self) -> tuple[RunResult, ...]:
        """All runs."""
        return (*(run for line in self.lines for run in line.runs), *self.behind, *self.waiting)

    @property
    def config(self) -> Config:
        """The configuration of the first run."""
        return self.runs[0].run.config

    @property
    def methods(self) -> dict[str, str]:
        """The method of each label."""
        return {run.run.label: run.run.method for run in self.runs}

    @property
    def count(self) -> tuple[int, int]:
        """The number of finished runs and the number of all runs."""
        return sum(run.finished for run in self.runs), len(self.runs)


def group_runs(runs: Sequence[RunResult], target: float | None = None) -> list[RunGroup]:
    """Group the runs. `target` overrides the target of the comparison or data set."""
    facets = _facets(runs)
    groups: dict[tuple[Any, ...], list[RunResult]] = {}
    for run in runs:
        groups.setdefault(tuple(run.run.config.flat()[name] for name in facets), []).append(run)
    # Settings that follow from the data set, such as its default model, are not part of a title.
    data = len({each[0] for each in groups})
    told = tuple(name for at, name in enumerate(facets) if len({(each[0], each[at]) for each in groups}) > data)
    return [_group(group, told, target_for(group) if target is None else target) for group in groups.values()]


def _facets(runs: Sequence[RunResult]) -> tuple[str, ...]:
    """The settings that separate problems: the data, and every setting in which runs of one label differ."""
    seen = {(name, run.run.label, value) for run in runs for name, value in run.run.config.flat().items()}
    counts = Counter((name, label) for name, label, _ in seen)
    differ = {"data", *(name for (name, _), count in counts.items() if count > 1)}
    return tuple(name for name in PROBLEM if name in differ)


def _group(runs: Sequence[RunResult], facets: tuple[str, ...], target: float | None) -> RunGroup:
    lines: list[MethodResults] = []
    behind: list[RunResult] = []
    waiting: list[RunResult] = []
    for line in by_label(_relabelled(runs), target):
        furthest = max(map(len, line.records))
        waiting += [run for run in line.runs if not run.records]
        if furthest:
            # A run that diverged stays in its line; otherwise the line would be the mean of the successful runs only.
            lines.append(replace(line, runs=tuple(run for run in line.runs if _in_line(run, furthest))))
        behind += [run for run in line.runs if run.records and not _in_line(run, furthest)]
    return RunGroup(facets, target, tuple(lines), tuple(behind), tuple(waiting))


def _in_line(run: RunResult, furthest: int) -> bool:
    return len(run.records) == furthest or run.diverged or run.stopped is not None


def target_for(runs: Sequence[RunResult]) -> float | None:
    """The target of the comparison that the runs belong to, or the default of the data set."""
    for parent in dict.fromkeys(run.path.parent for run in runs):
        with suppress(UserError, OSError):  # `find_runs` has already warned
            return Comparison.open(parent).target
    return target_of(runs[0].run.config.problem.data)


def _relabelled(runs: Sequence[RunResult]) -> list[RunResult]:
    """The runs, label by label. If runs of one label have different settings, add the settings to the label."""
    relabelled: list[RunResult] = []
    owners: dict[str, str] = {}
    for group in by_label(runs, None):
        settings = [{"method": run.run.method, **run.run.plain()} for run in group.runs]
        differ = _differing(settings)
        seeds = [
            (run.seed, *(str(own.get(name)) for name in differ)) for run, own in zip(group.runs, settings, strict=True)
        ]
        count = Counter(seeds)
        for run, own, seed in zip(group.runs, settings, seeds, strict=True):
            apart = [f"{name}={short_value(own[name])}" for name in differ if name in own]
            if count[seed] > 1:  # the same run twice
                apart.append(f"{run.path.parent.name}/{run.path.name}")
            name = f"{group.label} ({', '.join(apart)})" if apart else group.label
            if owners.setdefault(name, group.label) != group.label:  # the user chose the same text as a label
                name = f"{name} in {run.path.parent.name}"
            relabelled.append(replace(run, run=replace(run.run, label=name)))
    return relabelled


def _differing(values: Sequence[dict[str, Any]]) -> list[str]:
    """The settings in which runs differ, in their usual order, without those that do not affect the result."""
    names = dict.fromkeys(name for each in values for name in each if name not in NOT_COMPARED)
    return [name for name in names if any(each.get(name) != values[0].get(name) for each in values)]


def short_value(value: Any) -> str:
    """A setting as short text."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(short_value, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)
