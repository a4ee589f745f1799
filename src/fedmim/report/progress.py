"""Progress while runs are under way: a live display on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live

from fedmim.experiments.run import Run
from fedmim.report.live import Board

if TYPE_CHECKING:
    from fedmim.simulation.record import Record

LINE_SECONDS = 2.0  # between lines at first; a fiftieth of the time gone later on, so that a log stays short
LONGEST_SECONDS = 60.0


class Display(Protocol):
    """What is told of the runs as they go on."""

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""

    def skip(self, run: Run) -> None:
        """A run was finished before."""


@contextmanager
def watching(runs: Sequence[Run], console: Console, quiet: bool = False) -> Iterator[Display]:
    """A display of these runs, one line for all runs of a label."""
    if quiet:
        yield Silence()
    elif console.is_terminal:
        board = Board(runs, console)
        with Live(board, console=console, refresh_per_second=4):
            yield board
    else:
        yield Lines(console)


class Silence:
    """No display."""

    def record(self, run: Run, record: Record) -> None:
        """Nothing."""

    def skip(self, run: Run) -> None:
        """Nothing."""


class Lines:
    """A line every few seconds, and one at the end of each run."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.start = self.last = time.monotonic()
        self.refused: dict[tuple[str, int], int] = {}

    def record(self, run: Run, record: Record) -> None:
        """Print a line if it is time."""
        key, now = (run.label, run.config.settings.seed), time.monotonic()
        self.refused[key] = self.refused.get(key, 0) + record.refused
        pause = min(LONGEST_SECONDS, max(LINE_SECONDS, (now - self.start) / 50))
        if record.round < run.config.settings.rounds and now - self.last < pause:
            return
        self.last = now
        parts = [f"{run.label}, seed {run.config.settings.seed}: round {record.round} of {run.config.settings.rounds}"]
        if record.test_accuracy is not None:
            parts.append(f"accuracy {100 * record.test_accuracy:.2f} %")
        if self.refused[key]:
            parts.append(f"{self.refused[key]} uploads refused")
        self.console.print(", ".join(parts), markup=False, highlight=False)

    def skip(self, run: Run) -> None:
        """Say that there is nothing to do."""
        self.console.print(f"{run.label}, seed {run.config.settings.seed}: finished before", markup=False)
