"""The grid of an experiment: a cell for each data set, column, row and comparison, with a run for each seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.reproduction.experiment import PaperExperiment, TableColumn, TableRow
from fedmim.reproduction.scale import Scale


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


Best = Mapping[tuple[str, str], dict[str, Any] | None]  # (data, label of the row) -> its own best settings


def cells(
    experiment: PaperExperiment, scale: Scale, overrides: dict[str, Any], seeds: Sequence[int], best: Best
) -> list[Cell]:
    """All places of a table. `overrides`, from the command line, win over scale and experiment, not over the axes."""
    made = []
    for data in experiment.data:
        for column in experiment.columns:
            for fair in experiment.fair:
                for row in experiment.rows:
                    own = best.get((data, row.label)) if fair == "own" else {}
                    values = (
                        column_settings(experiment, scale, data, column) | overrides | column.settings | row.settings
                    )
                    runs: tuple[Run, ...] = ()
                    if own is not None:
                        run = Run.make(row.method, values | own, row.label, where=experiment.name)
                        runs = tuple(run.replace(seed=seed) for seed in seeds)
                    made.append(Cell(experiment, data, column, row, fair, runs))
    return made


def column_settings(experiment: PaperExperiment, scale: Scale, data: str, column: TableColumn) -> dict[str, Any]:
    """The settings of a column below flags, axes and the method's own."""
    of_column = scale.experiments.get(experiment.name, {}).get("columns", {}).get(column.label, {})
    values: dict[str, Any] = defaults(data) | shared_settings(experiment, scale) | of_column
    return values


def shared_settings(experiment: PaperExperiment, scale: Scale) -> dict[str, Any]:
    """What scale and experiment set for all columns and data sets."""
    of_scale = scale.experiments.get(experiment.name, {})
    return scale.settings | experiment.settings | {name: of_scale[name] for name in of_scale if name != "columns"}


def in_order(cells: Iterable[Cell]) -> list[Run]:
    """All runs, seed by seed, so that early results are whole; those of one split side by side."""
    runs = [run for cell in cells for run in cell.runs]
    seeds = list(dict.fromkeys(run.config.settings.seed for run in runs))
    return [run for seed in seeds for run in runs if run.config.settings.seed == seed]
