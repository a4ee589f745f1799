"""The results of the finished runs of a paper's table: one entry for each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmim.experiments.archive import Archive
from fedmim.experiments.methods import Run
from fedmim.reproduction.grid import Cell
from fedmim.results.method_results import MethodResults, RunResult
from fedmim.results.metrics import METRICS, Spread


@dataclass(frozen=True)
class TableEntry:
    """One cell of a table with at least one finished run."""

    cell: Cell
    results: MethodResults  # of the finished runs
    targets: tuple[float, ...]  # accuracies that rounds and bytes are counted to

    @property
    def run(self) -> Run:
        """The first of its runs; they differ in the seed."""
        return self.results.run

    @property
    def seeds(self) -> int:
        """How many runs it has."""
        return len(self.results.runs)

    @property
    def main(self) -> Spread | None:
        """The metric that the table shows, accuracy in %."""
        scale = METRICS[self.cell.experiment.figure].scale
        found = self.results.over_seeds(self.cell.experiment.figure)
        return found and (scale * found[0], scale * found[1])

    def by_seed(self, metric: str) -> dict[int, float]:
        """A metric of each seed, accuracy in %."""
        scale = METRICS[metric].scale
        return {seed: scale * value for seed, value in self.results.by_seed(metric).items()}


def finished_entries(
    cells: Sequence[Cell], archive: Archive, targets: Mapping[str, Sequence[float]]
) -> list[TableEntry]:
    """The cells of which something is finished."""
    made = []
    for cell in cells:
        found = [(run, records) for run in cell.runs if (records := archive.records(run)) is not None]
        if found:
            runs = tuple(RunResult(run, archive.file(run), records) for run, records in found)
            made.append(TableEntry(cell, MethodResults(runs), tuple(targets.get(cell.data, ()))))
    return made
