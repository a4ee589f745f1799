"""What the finished runs of a paper's table amount to: one entry a place, over the seeds that have ended."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedmim.experiments.archive import Archive
from fedmim.experiments.run_folder import Records
from fedmim.report.results import summarise
from fedmim.reproduction.grid import Cell

Spread = tuple[float, float]  # mean, and standard deviation over seeds (0 for one)


@dataclass(frozen=True)
class Reached:
    """Rounds and bytes, up and down together, until an accuracy was reached."""

    target: float
    rounds: Spread | None  # None where some seed never reached it
    bytes: Spread | None
    missed: int  # seeds that never did


@dataclass(frozen=True)
class TableEntry:
    """One place of a table, with at least one finished run."""

    cell: Cell  # with the finished runs alone
    records: tuple[Records, ...]  # one a run
    figures: dict[str, Spread]
    reached: tuple[Reached, ...]

    @property
    def seeds(self) -> int:
        """How many runs it has."""
        return len(self.records)

    @property
    def main(self) -> Spread | None:
        """The figure that the table shows, accuracy in %."""
        return self.percent(self.cell.experiment.figure)

    def by_seed(self, figure: str) -> dict[int, float]:
        """A figure of each seed, accuracies in %."""
        alone = [entry(self.cell, (records,), ()).percent(figure) for records in self.records]
        return {
            run.config.settings.seed: spread[0] for run, spread in zip(self.cell.runs, alone, strict=True) if spread
        }

    def percent(self, figure: str) -> Spread | None:
        """A figure, accuracies in %."""
        spread = self.figures.get(figure)
        if spread is None or "accuracy" not in figure:
            return spread
        return 100 * spread[0], 100 * spread[1]


def entries(cells: Sequence[Cell], archive: Archive, targets: dict[str, list[float]]) -> list[TableEntry]:
    """The places of which something is finished."""
    made = []
    for cell in cells:
        found = [(run, records) for run in cell.runs if (records := archive.records(run)) is not None]
        if found:
            finished = replace(cell, runs=tuple(run for run, _ in found))
            made.append(entry(finished, tuple(records for _, records in found), targets.get(cell.data, [])))
    return made


def entry(cell: Cell, records: tuple[Records, ...], targets: Sequence[float]) -> TableEntry:
    """One place from the rounds of its runs."""
    summaries = [summarise(each, None) for each in records]
    names = ("last_ten_accuracy", "best_accuracy", "final_accuracy", "consistency", "bytes_up", "bytes_down", "seconds")
    figures = {}
    for name in names:
        values = [getattr(summary, name) for summary in summaries]
        if None not in values:
            figures[name] = spread(values)
    return TableEntry(cell, records, figures, tuple(_reached(records, target) for target in targets))


def _reached(records: tuple[Records, ...], target: float) -> Reached:
    summaries = [summarise(each, target) for each in records]
    rounds = [summary.rounds_to_target for summary in summaries if summary.rounds_to_target is not None]
    moved = [summary.bytes_to_target for summary in summaries if summary.bytes_to_target is not None]
    missed = len(summaries) - len(rounds)
    return Reached(target, None if missed else spread(rounds), None if missed else spread(moved), missed)


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
