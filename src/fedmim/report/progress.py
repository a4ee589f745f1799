"""Progress while runs are under way: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedmim.experiments.methods import Run
from fedmim.report.style import colour_of

if TYPE_CHECKING:
    from fedmim.simulation.loop import Record

LINE_SECONDS = 2.0


class Display(Protocol):
    """What is told of the runs as they go on."""

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""

    def skip(self, run: Run) -> None:
        """A run was finished before."""


@contextmanager
def watching(runs: list[Run], console: Console) -> Iterator[Display]:
    """A display of these runs, one line for all runs of a label."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.fields[name]}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]:>8}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console) as progress:
        yield Bars(progress, runs)


class Bars:
    """Bars on a terminal."""

    def __init__(self, progress: Progress, runs: list[Run]) -> None:
        self.progress = progress
        self.tasks: dict[str, TaskID] = {}
        self.finished = dict.fromkeys((run.label for run in runs), 0)  # rounds of runs that have ended
        totals: dict[str, int] = {}
        methods = {run.label: run.method for run in runs}
        for run in runs:
            totals[run.label] = totals.get(run.label, 0) + run.config.rounds
        for label, total in totals.items():
            name = f"[{colour_of(methods[label])}]{label.replace('[', chr(92) + '[')}[/]"
            self.tasks[label] = progress.add_task("", total=total, name=name, accuracy="", start=False)

    def record(self, run: Run, record: Record) -> None:
        """Move the bar of the run's label."""
        task = self.tasks[run.label]
        self.progress.start_task(task)
        if record.test_accuracy is not None:
            self.progress.update(task, accuracy=f"{100 * record.test_accuracy:.2f} %")
        self.progress.update(task, completed=self.finished[run.label] + record.round)
        if record.round == run.config.rounds:
            self.finished[run.label] += record.round

    def skip(self, run: Run) -> None:
        """Move the bar past a run that was finished before."""
        self.finished[run.label] += run.config.rounds
        self.progress.update(self.tasks[run.label], completed=self.finished[run.label])


class Lines:
    """A line every few seconds, and one at the end of each run."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = time.monotonic()

    def record(self, run: Run, record: Record) -> None:
        """Print a line if it is time."""
        ended = record.round == run.config.rounds
        if ended or time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            accuracy = "" if record.test_accuracy is None else f", accuracy {100 * record.test_accuracy:.2f} %"
            name = f"{run.label}, seed {run.config.seed}"
            self.console.print(f"{name}: round {record.round} of {run.config.rounds}{accuracy}", markup=False)

    def skip(self, run: Run) -> None:
        """Say that there is nothing to do."""
        self.console.print(f"{run.label}, seed {run.config.seed}: finished before", markup=False)
