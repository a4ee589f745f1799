"""The paper's tables and figures as grids of runs: data sets, columns, rows (methods), two ways of being fair, seeds.

presets/experiments.toml says what varies in each, presets/paper.toml and presets/cpu.toml at which scale, and
presets/numbers.toml what the paper reports. Fair is "common", all methods at the paper's rate, or "own", each at the
settings that a search on held-out training data found best for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmim.algorithms import PAPER
from fedmim.errors import UserError, unknown
from fedmim.experiments.config import defaults, make, read_toml
from fedmim.experiments.methods import Run, label_all, parse_list

PRESETS = Path(__file__).parent / "presets"
SCALES = ("cpu", "paper")
OF_THE_PAPER = ("table1", "table2", "table3", "participation", "consistency")
ABLATIONS = ("rates", "decay", "inertia")
FAIR = ("common", "own")


@dataclass(frozen=True)
class Tuning:
    """How each method's own best settings are found."""

    trials: int = 12
    rate_trials: int = 6
    """Trials where the rate alone is searched."""
    validation: float = 0.1
    seed: int = 1000
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """At which size the experiments are run."""

    name: str
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    shrunk: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    targets: dict[str, list[float]] = field(default_factory=dict)
    """Accuracies for the rounds and bytes to reach them, by data set."""
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings for one experiment, and under `columns` for one of its columns."""
    tune: Tuning = Tuning()

    @classmethod
    def read(cls, name: str) -> Scale:
        """A scale of the package, or a TOML file of the same form."""
        if name not in SCALES and not name.endswith(".toml"):
            raise unknown("scale", name, [*SCALES, "FILE.toml"])
        path = PRESETS / f"{name}.toml" if name in SCALES else Path(name)
        values = read_toml(path)
        experiments = {each: values.pop(each) for each in OF_THE_PAPER + ABLATIONS if each in values}
        tune = make(Tuning, values.pop("tune", {}), f"{path}: tune")
        return make(cls, {"name": path.stem, "experiments": experiments, "tune": tune, **values}, str(path))


@dataclass(frozen=True)
class Column:
    """One column: what is set there."""

    label: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One row: a method, with what it sets for itself."""

    label: str
    method: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A table or figure."""

    name: str
    title: str
    data: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    fair: tuple[str, ...] = FAIR
    figure: str = "last_ten_accuracy"
    """What the table shows of each run."""
    plot_against: str = "rounds"
    """What the figure has on its axis: rounds, rows, or a setting of the columns."""
    row_title: str = "Method"
    assumed: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str) -> Experiment:
        """One of presets/experiments.toml."""
        known = read_toml(PRESETS / "experiments.toml")
        if name not in known:
            raise unknown("experiment", name, [*known, "all", "ablations"])
        values = known[name]
        entries = values.pop("rows", [{"method": method} for method in PAPER])
        values["rows"] = rows_of([(row.pop("method"), row) for row in entries])
        values["columns"] = tuple(Column(column.pop("label"), column) for column in values["columns"])
        return make(cls, {"name": name, **values}, f"experiment {name}")


def rows_of(entries: Sequence[tuple[str, dict[str, Any]]]) -> tuple[Row, ...]:
    """A row for each method with its own settings."""
    labels = label_all(list(entries))
    return tuple(
        Row(label, method, {name: value for name, value in own.items() if name != "label"})
        for (method, own), label in zip(entries, labels, strict=True)
    )


def named(word: str) -> list[Experiment]:
    """The experiments of a word: one, all of the paper, or the ablations."""
    names = {"all": OF_THE_PAPER, "ablations": ABLATIONS}.get(word, (word,))
    return [Experiment.read(name) for name in names]


@dataclass(frozen=True)
class Narrowing:
    """What of an experiment is asked for; None: all."""

    data: tuple[str, ...] | None = None
    splits: tuple[str, ...] | None = None
    methods: str | None = None
    fair: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for fair in self.fair or ():
            if fair not in FAIR:
                raise unknown("fair", fair, FAIR)

    def __call__(self, experiment: Experiment) -> Experiment:
        """The experiment, narrowed. Data sets, splits and methods that it does not have take the place of its own."""
        changes: dict[str, Any] = {}
        if self.data:
            changes["data"] = self.data
        if self.splits and any("split" in column.settings for column in experiment.columns):
            own = {column.settings["split"]: column for column in experiment.columns}
            changes["columns"] = tuple(own.get(split, Column(split, {"split": split})) for split in self.splits)
        elif self.splits:
            if len(self.splits) > 1:
                raise UserError(f"split: {experiment.name} has one split, got {','.join(self.splits)}")
            changes["settings"] = experiment.settings | {"split": self.splits[0]}
        if self.columns:
            changes["columns"] = self._columns(experiment)
        if self.methods:
            changes["rows"] = self._rows(experiment)
        if self.fair:
            changes["fair"] = tuple(fair for fair in experiment.fair if fair in self.fair)
            if not changes["fair"]:
                raise UserError(f"fair: {experiment.name} has {', '.join(experiment.fair)} only")
        return replace(experiment, **changes)

    def _columns(self, experiment: Experiment) -> tuple[Column, ...]:
        if self.splits and any("split" in column.settings for column in experiment.columns):
            raise UserError(f"columns: in {experiment.name} the splits are the columns; give one of --split, --columns")
        own = {column.label: column for column in experiment.columns}
        for label in self.columns or ():
            if label not in own:
                raise unknown("columns", label, own)
        return tuple(own[label] for label in self.columns or ())

    def _rows(self, experiment: Experiment) -> tuple[Row, ...]:
        entries = parse_list(self.methods or "")
        if all(not row.settings for row in experiment.rows):
            return rows_of(entries)
        names = [method for method, _ in entries]
        rows = tuple(row for row in experiment.rows if row.method in names)
        if not rows:
            raise UserError(f"methods: {experiment.name} has rows of its own, none of them {', '.join(names)}")
        return rows


@dataclass(frozen=True)
class Cell:
    """One place of a table: a run for each seed."""

    experiment: Experiment
    data: str
    column: Column
    row: Row
    fair: str
    runs: tuple[Run, ...]
    """Empty where the method's own best settings are not known yet."""


Best = Mapping[tuple[str, str], dict[str, Any] | None]  # (data, label of the row) -> its own best settings


def cells(
    experiment: Experiment, scale: Scale, overrides: dict[str, Any], seeds: Sequence[int], best: Best
) -> list[Cell]:
    """All places of a table. `overrides`, from the command line, win over scale and experiment, not over the axes."""
    made = []
    for data in experiment.data:
        for column in experiment.columns:
            for fair in experiment.fair:
                for row in experiment.rows:
                    own = best.get((data, row.label)) if fair == "own" else {}
                    values = settings(experiment, scale, data, column) | overrides | column.settings | row.settings
                    runs: tuple[Run, ...] = ()
                    if own is not None:
                        run = Run.make(row.method, values | own, row.label, where=experiment.name)
                        runs = tuple(run.with_seed(seed) for seed in seeds)
                    made.append(Cell(experiment, data, column, row, fair, runs))
    return made


def settings(experiment: Experiment, scale: Scale, data: str, column: Column) -> dict[str, Any]:
    """The settings of a column below flags, axes and the method's own."""
    of_column = scale.experiments.get(experiment.name, {}).get("columns", {}).get(column.label, {})
    values: dict[str, Any] = defaults(data) | of_all_columns(experiment, scale) | of_column
    return values


def of_all_columns(experiment: Experiment, scale: Scale) -> dict[str, Any]:
    """What scale and experiment set for all columns and data sets."""
    of_scale = scale.experiments.get(experiment.name, {})
    return scale.settings | experiment.settings | {name: of_scale[name] for name in of_scale if name != "columns"}


def in_order(cells: Iterable[Cell]) -> list[Run]:
    """All runs, seed by seed, so that early results are whole; those of one split side by side."""
    runs = [run for cell in cells for run in cell.runs]
    seeds = list(dict.fromkeys(run.config.seed for run in runs))
    return [run for seed in seeds for run in runs if run.config.seed == seed]


@dataclass(frozen=True)
class Numbers:
    """What the paper reports for an experiment."""

    columns: list[str]
    rows: dict[str, dict[str, list[float]]]  # data -> row -> a number a column

    @classmethod
    def read(cls, experiment: Experiment) -> Numbers:
        """Those of presets/numbers.toml, if it has any."""
        values = read_toml(PRESETS / "numbers.toml").get(experiment.name, {"columns": []})
        return cls(values.pop("columns"), values)

    def at(self, data: str, row: str, column: str) -> float | None:
        """The paper's number in one place; None where it has none."""
        found = self.rows.get(data, {}).get(row)
        return found[self.columns.index(column)] if found and column in self.columns else None
