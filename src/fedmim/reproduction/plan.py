"""What `fedmim reproduce` runs: the grid of cells of each experiment, the searches, and what is not finished yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.sweep import Sweep, distinct
from fedmim.experiments.tune import Search, Tuner, space_of
from fedmim.reproduction.experiment import PaperExperiment, TableColumn, TableRow
from fedmim.reproduction.scale import Scale


@dataclass(frozen=True)
class ReproductionPlan:
    """Experiments in a folder: runs/ and unfinished/ are those of the sweep, tune/ has the searches."""

    experiments: tuple[PaperExperiment, ...]
    scale: Scale
    seeds: tuple[int, ...]
    overrides: dict[str, Any]
    sweep: Sweep

    def tuners(self, experiment: PaperExperiment) -> dict[tuple[str, str], Tuner]:
        """The search of each row on each data set, by (data, label of the row)."""
        if "own" not in experiment.fair:
            return {}
        made = {}
        for data, row in product(experiment.data, experiment.rows):
            search = search_for(row, data, self.scale, self.overrides)
            made[data, row.label] = Tuner(search, self.sweep.path / "tune" / search.name, self.sweep.every)
        return made

    def searches(self) -> list[Tuner]:
        """Each search once; tables share them."""
        tuners = [tuner for experiment in self.experiments for tuner in self.tuners(experiment).values()]
        return list({tuner.folder: tuner for tuner in tuners}.values())

    def cells(self) -> list[Cell]:
        """All places; those of own settings have no runs until their search has ended."""
        made = []
        for experiment in self.experiments:
            tuners = self.tuners(experiment).items()
            best = {place: found.settings for place, tuner in tuners if tuner.finished and (found := tuner.found())}
            made += cells(experiment, self.scale, self.overrides, self.seeds, best)
        return made

    def to_do(self, fair: str) -> list[Run]:
        """The runs that are not finished."""
        runs = in_order(cell for cell in self.cells() if cell.fair == fair)
        return [run for run in distinct(runs) if self.sweep.archive.records(run) is None]

    def expected(self) -> list[Run]:
        """For the runs at own settings that are not known yet, the common ones that they will resemble."""
        places = self.cells()
        unknown = {place_of(cell) for cell in places if not cell.runs}
        return [run for cell in places if cell.runs and place_of(cell) in unknown for run in cell.runs]

    def widened(self, whole: PaperExperiment, narrowed: PaperExperiment) -> ReproductionPlan:
        """The plan of a whole experiment with what was asked for beyond it: what its table shows."""
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
    """One place of a table: a run for each seed."""

    experiment: PaperExperiment
    data: str
    column: TableColumn
    row: TableRow
    fair: str
    runs: tuple[Run, ...]
    """Empty where the method's own best settings are not known yet."""


Best = Mapping[tuple[str, str], dict[str, Any] | None]  # (data, label of the row) -> its own best settings, if known


def cells(
    experiment: PaperExperiment, scale: Scale, overrides: dict[str, Any], seeds: Sequence[int], best: Best
) -> list[Cell]:
    """All places of a table. `overrides`, from the command line, win over scale and experiment, not over the axes."""
    made = []
    for data, column, fair, row in product(experiment.data, experiment.columns, experiment.fair, experiment.rows):
        own = best.get((data, row.label)) if fair == "own" else {}
        runs: tuple[Run, ...] = ()
        if own is not None:
            values = column_settings(experiment, scale, data, column) | overrides | column.settings | row.settings | own
            run = Run.make(row.method, values, row.label, where=experiment.name)
            runs = tuple(run.replace(seed=seed) for seed in seeds)
        made.append(Cell(experiment, data, column, row, fair, runs))
    return made


def column_settings(experiment: PaperExperiment, scale: Scale, data: str, column: TableColumn) -> dict[str, Any]:
    """The settings of a column below flags, axes and the method's own."""
    of_column = scale.experiments.get(experiment.name, {}).get("columns", {}).get(column.label, {})
    return {**defaults(data), **shared_settings(experiment, scale), **of_column}


def shared_settings(experiment: PaperExperiment, scale: Scale) -> dict[str, Any]:
    """What scale and experiment set for all columns and data sets."""
    of_scale = scale.experiments.get(experiment.name, {})
    return scale.settings | experiment.settings | {name: of_scale[name] for name in of_scale if name != "columns"}


def in_order(cells: Iterable[Cell]) -> list[Run]:
    """All runs, seed by seed, so that early results are whole; those of one split side by side."""
    runs = [run for cell in cells for run in cell.runs]
    seeds = [run.config.settings.seed for run in runs]
    return sorted(runs, key=lambda run: seeds.index(run.config.settings.seed))


def search_for(row: TableRow, data: str, scale: Scale, overrides: dict[str, Any]) -> Search:
    """The search of a row's own best settings on a data set, once for all columns of all tables."""
    tune = scale.tune
    values = defaults(data) | scale.settings | tune.settings | overrides | row.settings
    run = Run.make(row.method, values | {"validation": tune.validation, "seed": tune.seed}, row.label, where="tune")
    space = space_of(row.method, set(row.settings))
    return Search(run, space, tune.trials if len(space) > 1 else tune.rate_trials)


def place_of(cell: Cell) -> tuple[str, str, str, str]:
    """A place of a table, the same for both comparisons."""
    return cell.experiment.name, cell.data, cell.column.label, cell.row.label


def trials_left(tuner: Tuner) -> list[Run]:
    """The trials of a search that are still to come, all as its start."""
    found = tuner.found()
    return [tuner.search.run] * max(0, tuner.search.trials - (found.finished if found else 0))
