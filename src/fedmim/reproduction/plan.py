"""The plan of `fedmim reproduce`: the cells of each experiment, the searches, and the runs that are left to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from fedmim.experiments.config import defaults, own_problem
from fedmim.experiments.run import Run
from fedmim.experiments.search import Search, space_of
from fedmim.experiments.sweep import Sweep, distinct
from fedmim.experiments.tune import Tuner
from fedmim.reproduction.experiment import PaperExperiment, TableColumn, TableRow
from fedmim.reproduction.scale import Scale


@dataclass(frozen=True)
class ReproductionPlan:
    """Experiments in a folder: the sweep has runs/ and unfinished/, the searches are in tune/."""

    experiments: tuple[PaperExperiment, ...]
    scale: Scale
    seeds: tuple[int, ...]
    overrides: dict[str, Any]
    sweep: Sweep

    def tuners(self, experiment: PaperExperiment) -> dict[tuple[str, str, str], Tuner]:
        """The search of each cell, by (data, column label, row label). Several cells may have the same search."""
        if "own" not in experiment.fair:
            return {}
        made, trials = {}, self.scale.of(experiment.name).trials
        for data, column, row in product(experiment.data, experiment.columns, experiment.rows):
            usual = search_for(row, data, self.scale, self.overrides, column)
            search = replace(usual, trials=trials or usual.trials)
            # A search with more trials has its own folder, since other experiments use the result of the usual one.
            name = search.name if search.trials == usual.trials else f"{search.name}-{trials}"
            folder = self.sweep.path / "tune" / name
            made[data, column.label, row.label] = Tuner(search, folder, self.sweep.every)
        return made

    def searches(self) -> list[Tuner]:
        """All searches without duplicates; tables share them."""
        tuners = [tuner for experiment in self.experiments for tuner in self.tuners(experiment).values()]
        return list({tuner.folder: tuner for tuner in tuners}.values())

    def cells(self) -> list[Cell]:
        """All cells. Those with tuned settings have no runs until their search has ended."""
        made = []
        for experiment in self.experiments:
            tuners = self.tuners(experiment).items()
            best = {place: found.settings for place, tuner in tuners if tuner.finished and (found := tuner.found())}
            made += cells(experiment, self.scale, self.overrides, self.seeds, best)
        return made

    def to_do(self, fair: str) -> list[Run]:
        """The runs that are not finished yet."""
        runs = in_order(cell for cell in self.cells() if cell.fair == fair)
        return [run for run in distinct(runs) if self.sweep.archive.records(run) is None]

    def expected(self) -> list[Run]:
        """Stand-ins for tuned runs that are not known yet: the same runs with the shared learning rate."""
        places = self.cells()
        unknown = {place_of(cell) for cell in places if not cell.runs}
        return [run for cell in places if cell.runs and place_of(cell) in unknown for run in cell.runs]

    def widened(self, whole: PaperExperiment, narrowed: PaperExperiment) -> ReproductionPlan:
        """The plan for the table of a whole experiment, including what was requested in addition."""
        experiment = replace(
            whole,
            settings=narrowed.settings,
            data=tuple(dict.fromkeys((*whole.data, *narrowed.data))),
            columns=tuple({each.label: each for each in (*whole.columns, *narrowed.columns)}.values()),
            rows=tuple({each.label: each for each in (*whole.rows, *narrowed.rows)}.values()),
        )
        seeds = tuple(dict.fromkeys((*self.scale.seeds, *self.seeds)))
        return replace(self, experiments=(experiment,), seeds=seeds)


@dataclass(frozen=True)
class Cell:
    """One cell of a table: one run per seed."""

    experiment: PaperExperiment
    data: str
    column: TableColumn
    row: TableRow
    fair: str
    runs: tuple[Run, ...]
    """Empty if the tuned settings are not known yet."""


Best = Mapping[tuple[str, str, str], dict[str, Any] | None]  # (data, column, row) -> tuned settings, if known


def cells(
    experiment: PaperExperiment, scale: Scale, overrides: dict[str, Any], seeds: Sequence[int], best: Best
) -> list[Cell]:
    """All cells of a table. `overrides` (command line) take precedence over scale and experiment, but not over the
    settings of columns and rows."""
    made = []
    for data, column, fair, row in product(experiment.data, experiment.columns, experiment.fair, experiment.rows):
        own = best.get((data, column.label, row.label)) if fair == "own" else {}
        runs: tuple[Run, ...] = ()
        if own is not None:
            values = column_settings(experiment, scale, data, column) | overrides | column.settings | row.settings | own
            run = Run.make(row.method, values, row.label, where=experiment.name)
            runs = tuple(run.replace(seed=seed) for seed in seeds)
        made.append(Cell(experiment, data, column, row, fair, runs))
    return made


def column_settings(experiment: PaperExperiment, scale: Scale, data: str, column: TableColumn) -> dict[str, Any]:
    """The settings of a column, without flags and without the settings of columns and rows."""
    of_column = scale.of(experiment.name).columns.get(column.label, {})
    return {**defaults(data), **shared_settings(experiment, scale), **of_column, **own_problem(data)}


def shared_settings(experiment: PaperExperiment, scale: Scale) -> dict[str, Any]:
    """The settings of scale and experiment that apply to all columns and data sets."""
    return scale.settings | experiment.settings | scale.of(experiment.name).settings


def in_order(cells: Iterable[Cell]) -> list[Run]:
    """All runs, seed by seed: a seed is complete before the next one starts. Runs on the same split are adjacent."""
    runs = [run for cell in cells for run in cell.runs]
    seeds = [run.config.settings.seed for run in runs]
    return sorted(runs, key=lambda run: seeds.index(run.config.settings.seed))


def search_for(
    row: TableRow,
    data: str,
    scale: Scale,
    overrides: dict[str, Any],
    column: TableColumn | None = None,
) -> Search:
    """The search for the tuned settings of a row on a data set. All columns and tables share it, unless the scale
    searches for each column. Its trials train all rounds, whatever the runs do."""
    tune = scale.tune
    own = column.settings if column and tune.each_column else {}
    values = defaults(data) | scale.settings | tune.settings | own_problem(data) | overrides | own | row.settings
    values |= {"validation": tune.validation, "seed": tune.seed, "until": None, "patience": None}
    run = Run.make(row.method, values, row.label, where=f"search for {row.label}")
    space = space_of(row.method, set(row.settings))
    return Search(run, space, tune.trials if len(space) > 1 else tune.rate_trials)


def place_of(cell: Cell) -> tuple[str, str, str, str]:
    """The place of a cell, the same for shared and tuned settings."""
    return cell.experiment.name, cell.data, cell.column.label, cell.row.label


def trials_left(tuner: Tuner) -> list[Run]:
    """The remaining trials of a search, each with its initial settings."""
    found = tuner.found()
    return [tuner.search.run] * max(0, tuner.search.trials - (found.finished if found else 0))
