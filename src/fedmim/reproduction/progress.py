"""Progress of a sweep: the run under way, and the whole with the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from fedmim.experiments.run import Run

if TYPE_CHECKING:
    from fedmim.simulation.record import Record

LINE_SECONDS = 10.0


def work(run: Run) -> float:
    """About how much work a run is, relative to others."""
    config = run.config
    gradients = 2 if run.method == "fedsam" else 1
    local = config.settings.local_steps or config.settings.local_epochs * 10
    return config.settings.rounds * (config.settings.participation * config.problem.clients * local * gradients + 1)


class SweepDisplay:
    """Counts runs and work; the time left is from the work done since the start."""

    def __init__(self, runs: Sequence[Run], console: Console, later: float = 0.0) -> None:
        self.console = console
        self.later = later  # work that comes after these runs
        self.runs = len(runs)
        self.ended = 0  # runs
        self.total = sum(map(work, runs))
        self.done = 0.0  # work of runs that have ended
        self.measured = 0.0  # work of the rounds seen here
        self.seconds = 0.0
        self._under_way: str | None = None
        self._rounds = 0

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""
        if self._under_way != run.identity():
            self._under_way, self._rounds = run.identity(), record.round - 1
        each = work(run) / run.config.settings.rounds
        self.measured += each
        self.seconds += record.seconds
        self._rounds = record.round
        if record.round == run.config.settings.rounds:
            self.skip(run)
        self.show(run, record)

    def skip(self, run: Run) -> None:
        """A run has ended, or goes no further."""
        self.ended += 1
        self.done += work(run)
        self._under_way, self._rounds = None, 0

    def left(self, run: Run) -> float | None:
        """Seconds left, once something is known."""
        if not self.measured:
            return None
        present = work(run) * self._rounds / run.config.settings.rounds if self._under_way else 0.0
        return (self.later + max(0.0, self.total - self.done - present)) * self.seconds / self.measured

    def show(self, run: Run, record: Record) -> None:
        """Show where things stand."""
        raise NotImplementedError

    def words(self, run: Run, record: Record) -> str:
        """The run under way, in words."""
        accuracy = "" if record.test_accuracy is None else f", {100 * record.test_accuracy:.2f} %"
        where = f"{run.config.problem.data}, {run.config.problem.split}, seed {run.config.settings.seed}"
        return f"{run.label} (lr {run.config.settings.lr:g}; {where}): round {record.round} of {run.config.settings.rounds}{accuracy}"


class SweepLines(SweepDisplay):
    """A line every few seconds, and one at the end of each run."""

    last = 0.0

    def show(self, run: Run, record: Record) -> None:
        """Print a line if it is time."""
        ended = record.round == run.config.settings.rounds
        if ended or time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            number = self.ended + (not ended)
            left = self.left(run)
            rest = "" if left is None else f"; about {duration(left)} left"
            self.console.print(
                f"{number} of {self.runs}: {self.words(run, record)}{rest}", markup=False, soft_wrap=True
            )


class SweepBars(SweepDisplay):
    """Two bars on a terminal."""

    def __init__(self, runs: Sequence[Run], console: Console, later: float, progress: Progress) -> None:
        super().__init__(runs, console, later)
        self.progress = progress
        self.whole = progress.add_task("", total=self.total, name="all runs", left="")
        self.one = progress.add_task("", total=1, name="", left="")

    def skip(self, run: Run) -> None:
        """Move the bar of the whole."""
        super().skip(run)
        self.progress.update(self.whole, completed=self.done, name=f"{self.ended} of {self.runs} runs")

    def show(self, run: Run, record: Record) -> None:
        """Move both bars."""
        left = self.left(run)
        self.progress.update(
            self.whole,
            completed=self.done + work(run) * self._rounds / run.config.settings.rounds,
            name=f"{self.ended} of {self.runs} runs",
            left="" if left is None else f"{duration(left)} left",
        )
        words = escape(self.words(run, record))
        self.progress.update(self.one, total=run.config.settings.rounds, completed=record.round, name=words)


@contextmanager
def watching_sweep(runs: Sequence[Run], console: Console, later: Sequence[Run] = ()) -> Iterator[SweepDisplay]:
    """A display of a sweep: bars on a terminal, lines elsewhere. `later` are runs of which the time left knows."""
    rest = sum(map(work, later))
    if not runs or not console.is_terminal:
        yield SweepLines(runs, console, rest)
        return
    columns = (BarColumn(bar_width=24), TextColumn("{task.fields[name]}"), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=console) as progress:
        yield SweepBars(runs, console, rest, progress)


def duration(seconds: float) -> str:
    """A time in the two units that matter."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
