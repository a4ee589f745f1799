"""The layout of the paper's tables, for all formats: rows are methods, each column has a number for each comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedmim.reproduction.entries import TableEntry
from fedmim.reproduction.experiment import PaperExperiment
from fedmim.reproduction.paper_numbers import PaperNumbers
from fedmim.results.metrics import METRICS, Spread

DATA_TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "TinyImageNet"}
FAIR_TITLES = {"common": "common rate", "own": "own best"}


def data_title(data: str) -> str:
    """A data set as the paper calls it."""
    name, _, classes = data.partition(":")
    if classes and name == "tiny-imagenet":
        return f"{DATA_TITLES[name]}, {classes} of 200 classes"
    return DATA_TITLES.get(data, data)


@dataclass(frozen=True)
class TableNumber:
    """One number of a table as text."""

    mean: str
    deviation: str  # over seeds; empty with one seed and for the paper's numbers
    best: bool  # whether no other row has a better one

    def __str__(self) -> str:
        return f"{self.mean} ± {self.deviation}" if self.deviation else self.mean


class Layout:
    """The entries of an experiment by their place in its table."""

    def __init__(self, experiment: PaperExperiment, entries: Sequence[TableEntry]) -> None:
        self.experiment = experiment
        self.paper = PaperNumbers.read(experiment)
        self.entries = entries
        self.metric = METRICS[experiment.figure]
        self.found = {(e.cell.data, e.cell.column.label, e.cell.row.label, e.cell.fair): e for e in entries}
        self.data = [data for data in experiment.data if any(key[0] == data for key in self.found)]
        self.columns = [c.label for c in experiment.columns if any(key[1] == c.label for key in self.found)]
        self.rows = [row.label for row in experiment.rows if any(key[2] == row.label for key in self.found)]
        self.fair = [fair for fair in experiment.fair if any(key[3] == fair for key in self.found)]
        self.with_paper = any(self.paper.at(data, row, column) for data, column, row, _ in self.found)

    @property
    def subcolumns(self) -> list[str]:
        """What each column has: the comparisons, and the paper's numbers."""
        return [*self.fair, *(["paper"] if self.with_paper else [])]

    @property
    def one_way(self) -> bool:
        """Whether there is one number in each place, which needs no heading of its own."""
        return len(self.experiment.fair) == 1 and not self.with_paper

    def heads(self, between: str) -> list[str]:
        """What stands above the numbers of each subcolumn."""
        return [
            column if self.one_way else f"{column}{between}{FAIR_TITLES.get(sub, sub)}"
            for column in self.columns
            for sub in self.subcolumns
        ]

    def numbers(self, data: str, row: str) -> list[TableNumber | None]:
        """The numbers of a row, one for each subcolumn of each column."""
        return [self.number(data, column, row, sub) for column in self.columns for sub in self.subcolumns]

    def number(self, data: str, column: str, row: str, sub: str) -> TableNumber | None:
        """The number in one place; None where there is none."""
        own = self._value(data, column, row, sub)
        if own is None:
            return None
        others = [float(self._text(each[0])) for r in self.rows if (each := self._value(data, column, r, sub))]
        best = (max if self.metric.better == "higher" else min)(others)
        mean, deviation = map(self._text, own)
        entry = self.found.get((data, column, row, sub))
        return TableNumber(
            mean, deviation if entry and entry.seeds > 1 else "", len(others) > 1 and float(mean) == best
        )

    def heading(self, data: str, column: str) -> str:
        """A data set and column in words."""
        title = data_title(data)
        return title if len(self.experiment.columns) == 1 else f"{title}, {column}"

    def _value(self, data: str, column: str, row: str, sub: str) -> Spread | None:
        if sub != "paper":
            entry = self.found.get((data, column, row, sub))
            return entry.main if entry else None
        paper = self.paper.at(data, row, column)
        return None if paper is None else (paper, 0.0)

    def _text(self, value: float) -> str:
        """A number, accuracy in %, as text."""
        return (self.metric.long_form or self.metric.form).format(value)


def legend_text(layout: Layout) -> str:
    """What the numbers of a table are."""
    counts = sorted({entry.seeds for entry in layout.entries})
    seeds = " to ".join(map(str, counts[:: max(1, len(counts) - 1)]))
    caption = layout.metric.caption or layout.metric.meaning
    caption = caption[:1].upper() + caption[1:]
    parts = [f"{caption}; {seeds} seed{'s' * (counts[-1:] != [1])}{', ± standard deviation' * (counts[-1:] != [1])}."]
    if "own" in layout.fair:
        parts.append(
            "Common rate: all methods at the paper's rate and settings. Own best: each at the settings that a search "
            "on held-out training data found best for it (`fedmim tune`)."
        )
    if layout.with_paper:
        parts.append("Paper: as printed there, at its own scale.")
    return " ".join([*parts, "The best of a column in bold."])
