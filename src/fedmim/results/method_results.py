"""The results of one run, and of the runs of one method over several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedmim.divergence import diverged
from fedmim.experiments.methods import is_reference
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import Records
from fedmim.results.metrics import METRICS, Spread, Summary, mean, summarise


@dataclass(frozen=True, eq=False, repr=False)
class RunResult:
    """One run with its records."""

    run: Run
    path: Path
    records: Records

    def __repr__(self) -> str:
        return f"RunResult({self.run.label}, seed {self.seed}, {len(self.records)} records, {self.path})"

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or the run stopped early."""
        config = self.run.config
        stopped = self.stopped or (self.diverged and config.execution.on_divergence == "stop")
        return bool(stopped) or len(self.records) >= config.settings.rounds

    @cached_property
    def stopped(self) -> str | None:
        """Why and where `until` or `patience` stopped the run: "reached 0.9 in round 37"; None if they did not."""
        return self.run.stop_reason(self.records)

    @cached_property
    def diverged(self) -> bool:
        """Whether the run diverged; its accuracy then does not count."""
        return diverged(self.records)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.run.config.settings.seed


@dataclass(frozen=True, eq=False, repr=False)
class MethodResults:
    """The runs of one label, one per seed: one line of a comparison."""

    runs: tuple[RunResult, ...]
    target: float | None = None
    """The target accuracy of metrics such as rounds_to_target."""

    def __repr__(self) -> str:
        return f"MethodResults({self.label}, seeds {', '.join(map(str, self.seeds))})"

    @property
    def run(self) -> Run:
        """The first run. It represents all of them, since they differ only in the seed."""
        return self.runs[0].run

    @property
    def label(self) -> str:
        """The name of the line."""
        return self.run.label

    @property
    def reference(self) -> bool:
        """Whether the method is a reference, which is never the best."""
        return is_reference(self.run.method)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.seed for run in self.runs)

    @property
    def records(self) -> tuple[Records, ...]:
        """The records of the runs."""
        return tuple(run.records for run in self.runs)

    @property
    def diverged(self) -> int:
        """How many runs diverged."""
        return sum(run.diverged for run in self.runs)

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """The metrics of the runs."""
        return tuple(summarise(run.records, self.target) for run in self.runs)

    def at_target(self, target: float) -> MethodResults:
        """The same runs with another target accuracy."""
        return replace(self, target=target)

    def by_seed(self, metric: str) -> dict[int, float]:
        """The value of a metric for each seed that has one."""
        values = {run.seed: summary[metric] for run, summary in zip(self.runs, self.summaries, strict=True)}
        return {seed: value for seed, value in values.items() if value is not None}

    def over_seeds(self, metric: str) -> Spread | None:
        """Mean and standard deviation of a metric (0 for one seed); None unless every seed has a value."""
        values = [value for summary in self.summaries if (value := summary[metric]) is not None]
        if not values or len(values) < len(self.runs):
            return None
        return mean(values), statistics.stdev(values) if len(values) > 1 else 0.0

    def missing(self, metric: str) -> int:
        """How many seeds have no value of a metric."""
        return sum(summary[metric] is None for summary in self.summaries)

    def text(self, metric: str) -> str:
        """A metric over the seeds as text. Without a value: how many seeds diverged or never reached the target."""
        entry, pair = METRICS[metric], self.over_seeds(metric)
        if entry.incidents:
            return entry.number(sum(self.by_seed(metric).values()))
        if pair is not None:
            deviation = f" ± {entry.number(pair[1])}" if entry.compared and len(self.runs) > 1 else ""
            return f"{entry.number(pair[0])}{deviation}"
        if entry.of_model and self.diverged:
            return "diverged" if self.diverged == len(self.runs) else f"{self.diverged} of {len(self.runs)} diverged"
        if not entry.to_target:
            return "-"
        missed = self.missing(metric)
        return "never" if missed == len(self.runs) else f"{missed} of {len(self.runs)} never"


def by_label(runs: Sequence[RunResult], target: float | None) -> list[MethodResults]:
    """Group the runs of one problem by label, in their given order; references are last."""
    groups: dict[str, list[RunResult]] = {}
    for run in runs:
        groups.setdefault(run.run.label, []).append(run)
    lines = [MethodResults(tuple(group), target) for group in groups.values()]
    return sorted(lines, key=lambda line: line.reference)
