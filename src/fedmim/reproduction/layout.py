"""The layout of the tables, for all formats: the results of each cell and the numbers of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmim.experiments.archive import Archive
from fedmim.experiments.methods import is_reference
from fedmim.reproduction.experiment import PaperExperiment, paper_numbers
from fedmim.reproduction.plan import Cell
from fedmim.results.method_results import MethodResults, RunResult
from fedmim.results.metrics import METRICS, Spread
from fedmim.results.number_formats import listed

DATA_TITLES = {"mnist1d": "MNIST-1D", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "TinyImageNet"}
FAIR_TITLES = {"common": "shared learning rate", "own": "tuned"}


def data_title(data: str) -> str:
    """The name of a data set in the paper."""
    name, _, classes = data.partition(":")
    if classes and name == "tiny-imagenet":
        return f"{DATA_TITLES[name]}, {classes} of 200 classes"
    return DATA_TITLES.get(data, data)


def place_title(experiment: PaperExperiment, data: str, column: str) -> str:
    """The title of a data set and column."""
    return data_title(data) if len(experiment.columns) == 1 else f"{data_title(data)}, {column}"


@dataclass(frozen=True)
class TableEntry:
    """One cell of a table with at least one finished run."""

    cell: Cell
    results: MethodResults  # of its finished runs
    targets: tuple[float, ...]  # target accuracies for rounds and bytes

    @property
    def main(self) -> Spread | None:
        """Mean and standard deviation of the metric of the table; accuracy in %."""
        scale = METRICS[self.cell.experiment.figure].scale
        found = self.results.over_seeds(self.cell.experiment.figure)
        return found and (scale * found[0], scale * found[1])

    def by_seed(self, metric: str) -> dict[int, float]:
        """The value of a metric for each seed; accuracy in %."""
        scale = METRICS[metric].scale
        return {seed: scale * value for seed, value in self.results.by_seed(metric).items()}


def finished_entries(
    cells: Sequence[Cell], archive: Archive, targets: Mapping[str, Sequence[float]]
) -> list[TableEntry]:
    """The cells with at least one finished run."""
    made = []
    for cell in cells:
        found = [(run, records) for run in cell.runs if (records := archive.records(run)) is not None]
        if found:
            runs = tuple(RunResult(run, archive.path / run.name(), records) for run, records in found)
            made.append(TableEntry(cell, MethodResults(runs), tuple(targets.get(cell.data, ()))))
    return made


@dataclass(frozen=True)
class TableNumber:
    """One number of a table as text."""

    mean: str
    deviation: str  # over seeds; empty for one seed and for the paper's numbers
    best: bool  # whether no other row is better

    def __str__(self) -> str:
        return f"{self.mean} ± {self.deviation}" if self.deviation else self.mean


class Layout:
    """The entries of an experiment, by their place in the table."""

    def __init__(self, experiment: PaperExperiment, entries: Sequence[TableEntry]) -> None:
        self.experiment = experiment
        self.paper = paper_numbers(experiment)
        self.entries = entries
        self.metric = METRICS[experiment.figure]
        self.found = {(e.cell.data, e.cell.column.label, e.cell.row.label, e.cell.fair): e for e in entries}
        self.data = [data for data in experiment.data if any(key[0] == data for key in self.found)]
        self.columns = [c.label for c in experiment.columns if any(key[1] == c.label for key in self.found)]
        self.rows = [row.label for row in experiment.rows if any(key[2] == row.label for key in self.found)]
        references = {row.label for row in experiment.rows if is_reference(row.method)}
        self.ranked = [row for row in self.rows if row not in references]
        self.fair = [fair for fair in experiment.fair if any(key[3] == fair for key in self.found)]
        self.with_paper = any((data, row, column) in self.paper for data, column, row, _ in self.found)
        self.subcolumns = [*self.fair, "paper"] if self.with_paper else self.fair  # of each column
        self.one_way = (
            len(experiment.fair) == 1 and not self.with_paper
        )  # a single number per column needs no subheading

    def heads(self, between: str) -> list[str]:
        """The heading of each subcolumn."""
        return [
            column if self.one_way else f"{column}{between}{FAIR_TITLES.get(sub, sub)}"
            for column in self.columns
            for sub in self.subcolumns
        ]

    def numbers(self, data: str, row: str) -> list[TableNumber | None]:
        """The numbers of a row, one per subcolumn of each column."""
        return [self.number(data, column, row, sub) for column in self.columns for sub in self.subcolumns]

    def number(self, data: str, column: str, row: str, sub: str) -> TableNumber | None:
        """The number in one place, or a note that it diverged; None if there is no result."""
        own, entry = self._value(data, column, row, sub), self.found.get((data, column, row, sub))
        if own is None:
            diverged = entry and entry.results.diverged
            return TableNumber(entry.results.text(self.metric.name), "", best=False) if entry and diverged else None
        others = [float(self._text(each[0])) for r in self.ranked if (each := self._value(data, column, r, sub))]
        mean, deviation = map(self._text, own)
        better = max if self.metric.better == "higher" else min
        best = row in self.ranked and len(others) > 1 and float(mean) == better(others)
        return TableNumber(mean, deviation if entry and len(entry.results.runs) > 1 else "", best)

    def _value(self, data: str, column: str, row: str, sub: str) -> Spread | None:
        if sub != "paper":
            entry = self.found.get((data, column, row, sub))
            return entry.main if entry else None
        paper = self.paper.get((data, row, column))
        return None if paper is None else (paper, 0.0)

    def _text(self, value: float) -> str:
        """A number as text; accuracy in %."""
        return (self.metric.long_form or self.metric.form).format(value)


def legend_text(layout: Layout) -> str:
    """The caption: what the numbers of a table mean."""
    counts = sorted({len(entry.results.runs) for entry in layout.entries})
    seeds = " to ".join(map(str, counts[:: max(1, len(counts) - 1)]))
    summaries = [summary for entry in layout.entries for summary in entry.results.summaries]
    caption = layout.metric.caption or layout.metric.meaning_for(summaries)
    caption = caption[:1].upper() + caption[1:]
    parts = [f"{caption}; {seeds} seed{'s' * (counts[-1:] != [1])}{', ± standard deviation' * (counts[-1:] != [1])}."]
    if "own" in layout.fair:
        parts.append(
            "Shared learning rate: all methods use the paper's learning rate and settings. Tuned: each method uses the "
            "best settings found by a search on held-out training data (`fedmim tune`)."
        )
    if layout.with_paper:
        parts.append("Paper: the numbers printed in the paper, at the paper's scale.")
    parts.append("The best value of each column is bold.")
    if names := [row for row in layout.rows if row not in layout.ranked]:
        parts.append(f"{listed(names)}: for reference, not ranked.")
    return " ".join(parts)
