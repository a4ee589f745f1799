"""The tables and figures of the paper: the data sets, columns and rows (methods) of each.

They are described in presets/experiments.toml. Each compares the methods in up to two ways: "common", where all methods
use the paper's learning rate, and "own", where each method uses settings tuned on held-out training data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmim.algorithms import PAPER
from fedmim.errors import UserError, unknown
from fedmim.experiments.methods import is_reference, label_all, parse_list
from fedmim.experiments.sources import own_data
from fedmim.experiments.toml_values import make, read_toml

PRESETS = Path(__file__).parent / "presets"
OF_THE_PAPER = ("table1", "table2", "table3", "participation", "consistency")
ABLATIONS = ("rates", "decay", "inertia")
BEYOND = ("family", "look-ahead", "drift", "resnet")  # questions that the paper leaves open
EXPERIMENTS = OF_THE_PAPER + ABLATIONS + BEYOND
FAIR = ("common", "own")


@dataclass(frozen=True)
class TableColumn:
    """One column and its settings."""

    label: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class TableRow:
    """One row: a method and its settings."""

    label: str
    method: str
    settings: dict[str, Any]
    line: str = ""
    """For figures with one line for several rows: the name of the line."""
    x: float = 0.0
    """The place of the row on the horizontal axis of such a figure."""


@dataclass(frozen=True)
class PaperExperiment:
    """A table or figure."""

    name: str
    title: str
    data: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    fair: tuple[str, ...] = FAIR
    figure: str = "last_ten_accuracy"
    """The metric that the table shows."""
    plot_against: str = "rounds"
    """The figure: curves against rounds, rows, x (the numbers of the rows), or a setting of the columns; or ranks."""
    x_title: str = ""
    """For plot_against x: the title of the axis."""
    row_title: str = "Method"
    assumed: tuple[str, ...] = ()
    fits: tuple[str, ...] = ("cpu", "paper")
    """The built-in scales that it is made for."""

    @classmethod
    def read(cls, name: str) -> PaperExperiment:
        """Read an experiment from presets/experiments.toml."""
        known = read_toml(PRESETS / "experiments.toml")
        if name not in known:
            raise unknown("experiment", name, [*known, "all", "ablations"])
        values = known[name]
        entries = values.pop("rows", [{"method": method} for method in PAPER])
        values["rows"] = rows_of([(row.pop("method"), row) for row in entries])
        values["columns"] = tuple(TableColumn(column.pop("label"), column) for column in values["columns"])
        return make(cls, {"name": name, **values}, f"experiment {name}")


def rows_of(entries: Sequence[tuple[str, dict[str, Any]]]) -> tuple[TableRow, ...]:
    """One row per method and its settings; references are last."""
    entries = sorted(entries, key=lambda entry: is_reference(entry[0]))
    of_figure = [{name: own.pop(name) for name in ("line", "x") if name in own} for _, own in entries]
    labels = label_all(list(entries))
    return tuple(
        TableRow(label, method, {name: value for name, value in own.items() if name != "label"}, **shown)
        for (method, own), label, shown in zip(entries, labels, of_figure, strict=True)
    )


def experiments_named(word: str) -> list[PaperExperiment]:
    """The experiments with this name: one, all of the paper ("all"), or the ablations ("ablations")."""
    names = {"all": OF_THE_PAPER, "ablations": ABLATIONS}.get(word, (word,))
    return [PaperExperiment.read(name) for name in names]


def narrowed(
    experiment: PaperExperiment,
    *,
    data: tuple[str, ...] = (),
    splits: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    methods: str | None = None,
    fair: tuple[str, ...] = (),
) -> PaperExperiment:
    """The requested part of an experiment; empty arguments select everything. Data sets, splits and methods that the
    experiment does not have replace its own."""
    changes: dict[str, Any] = {"data": data} if data else {}
    by_split = any("split" in column.settings for column in experiment.columns)
    if by_split and (mine := [each for each in data if own_data(each)]):
        raise UserError(f"data: {experiment.name} compares splits, but {mine[0]} has its own clients; try table2")
    if splits and by_split:
        if columns:
            raise UserError(
                f"columns: the splits are the columns of {experiment.name}; give either --split or --columns"
            )
        own = {column.settings["split"]: column for column in experiment.columns}
        changes["columns"] = tuple(own.get(split, TableColumn(split, {"split": split})) for split in splits)
    elif splits:
        if len(splits) > 1:
            raise UserError(f"split: {experiment.name} uses one split, got {','.join(splits)}")
        changes["settings"] = experiment.settings | {"split": splits[0]}
    if columns:
        labels = {column.label: column for column in experiment.columns}
        for label in columns:
            if label not in labels:
                raise unknown("columns", label, labels)
        changes["columns"] = tuple(labels[label] for label in columns)
    if methods:
        changes["rows"] = _rows_named(experiment, methods)
    if fair:
        changes["fair"] = tuple(each for each in experiment.fair if each in fair)
        if not changes["fair"]:
            raise UserError(f"fair: {experiment.name} supports only {', '.join(experiment.fair)}")
    return replace(experiment, **changes)


def _rows_named(experiment: PaperExperiment, methods: str) -> tuple[TableRow, ...]:
    entries = parse_list(methods)
    if all(not row.settings for row in experiment.rows):
        return rows_of(entries)
    names = [method for method, settings in entries if not settings]
    fixed = tuple(row for row in experiment.rows if row.method in names)
    plain = dict.fromkeys(row.method for row in experiment.rows)  # so that the labels of added rows have their settings
    added = [entry for entry in entries if entry[1]]
    rows = fixed + rows_of([*((method, {}) for method in plain), *added])[len(plain) :]
    if not rows:
        raise UserError(
            f"methods: {experiment.name} has fixed rows, and none of them is {', '.join(names)}; a method with "
            f"settings, such as {names[0]}(lr=0.1), adds a row"
        )
    return rows


def paper_numbers(experiment: PaperExperiment) -> dict[tuple[str, str, str], float]:
    """The paper's numbers for an experiment, by data set, row and column, from presets/numbers.toml."""
    tables = read_toml(PRESETS / "numbers.toml").get(experiment.name, {"columns": []})
    columns = tables.pop("columns")
    return {
        (data, row, column): number
        for data, rows in tables.items()
        for row, numbers in rows.items()
        for column, number in zip(columns, numbers, strict=True)
    }
