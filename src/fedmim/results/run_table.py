"""The table of all runs of a group, and the settings in which they differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fedmim.experiments.config import NOT_COMPARED
from fedmim.experiments.run import Run
from fedmim.results.grouping import RunGroup, short_value
from fedmim.results.method_results import RunResult
from fedmim.results.metrics import Metric, Summary, columns, summarise

LAST = 1e18  # sorts runs without a value last


@dataclass(frozen=True)
class RunRow:
    """One run in the table."""

    run: RunResult
    rounds: str
    settings: dict[str, tuple[str, bool]]  # settings that differ: the value, and whether most runs have another
    cells: list[tuple[str, float]]  # the metrics: text, and the sort key


@dataclass(frozen=True)
class RunTable:
    """Rows and columns of the table."""

    rows: list[RunRow]
    settings: list[str]
    """The settings in which the runs differ; each has a column."""
    metrics: dict[Metric, str]
    """The metrics with a column, and their headings."""
    meanings: dict[Metric, str]
    """The explanations of these metrics, where they have one."""
    shared: dict[str, str]
    """The settings that all runs share."""


def run_table(group: RunGroup) -> RunTable:
    """One row per run of the group, ordered by label and seed."""
    places = {label: place for place, label in enumerate(group.methods)}
    runs = sorted(group.runs, key=lambda run: (places[run.run.label], run.seed))
    summaries = [summarise(run.records, group.target) for run in runs]
    metrics = columns("page", summaries, group.target)
    values = [_settings(run.run) for run in runs]
    names = dict.fromkeys(name for each in values for name in each)
    usual = {name: Counter(each[name] for each in values if name in each).most_common(1)[0][0] for name in names}
    differ = [name for name in names if any(each.get(name, usual[name]) != usual[name] for each in values)]
    rows = []
    for run, summary, own in zip(runs, summaries, values, strict=True):
        done, rounds = len(run.records), run.run.config.settings.rounds
        rows.append(
            RunRow(
                run,
                rounds=f"{done} ({run.stopped})"
                if run.stopped
                else f"{done}"
                if run.finished
                else f"{done} of {rounds}",
                settings={name: (own.get(name, ""), own.get(name, usual[name]) != usual[name]) for name in differ},
                cells=[_cell(metric, summary, run) for metric in metrics],
            )
        )
    meanings = {metric: metric.meaning_for(summaries) for metric in metrics if metric.meaning}
    shared = {name: value for name, value in usual.items() if name not in differ}
    return RunTable(rows, differ, metrics, meanings, shared)


def _cell(metric: Metric, summary: Summary, run: RunResult) -> tuple[str, float]:
    value = summary[metric.name]
    if value is not None:
        return metric.with_unit(value), value
    if metric.of_model and run.diverged:
        return "diverged", LAST
    if metric.to_target:
        return "never" if run.finished else "not yet", LAST
    return "–", LAST


def _settings(run: Run) -> dict[str, str]:
    """All settings of a run. Hyper-parameters are named as in the flags of `fedmim compare`: fedmim.alpha."""
    config = {name: value for name, value in run.config.plain().items() if name not in NOT_COMPARED}
    own = {f"{run.method.rpartition(':')[2]}.{name}": value for name, value in run.hyper_parameters().items()}
    return {name: short_value(value) for name, value in (config | own).items()}
