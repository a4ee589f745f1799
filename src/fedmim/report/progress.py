"""Show the progress of runs: a live table on a terminal, plain lines otherwise, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from fedmim.experiments.run import Run
from fedmim.experiments.sweep import Display
from fedmim.report.board import Board
from fedmim.report.run_progress import RunProgress
from fedmim.results.number_formats import duration

if TYPE_CHECKING:
    from fedmim.simulation.record import Record

TOLD = ("data", "split", "lr")  # settings that a line shows if the runs differ in them


@contextmanager
def watching(
    runs: Sequence[Run], console: Console, quiet: bool = False, later: Sequence[Run] = ()
) -> Iterator[Display]:
    """Show the progress of these runs. The time left includes the `later` runs."""
    progress = RunProgress(runs, later)
    if quiet:
        yield progress
    elif runs and console.is_terminal:
        with Live(Board(progress, console), console=console, refresh_per_second=4):
            yield progress
    else:
        yield PlainLines(progress, console, [*runs, *later])


@contextmanager
def status_line(console: Console) -> Iterator[Callable[[str], None]]:
    """A function that shows the current activity: one live line on a terminal, otherwise a line every few seconds."""
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
        return
    throttle = Throttle()
    yield lambda text: console.print(text, markup=False, highlight=False) if throttle.due() else None


class Throttle:
    """Decides when the next line is due: every 2 seconds at first, later less often, to keep logs short."""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()

    def due(self, now: bool = False) -> bool:
        """Whether a line is due; always with `now`."""
        moment = time.monotonic()
        if now or moment - self.last >= min(60.0, max(2.0, (moment - self.start) / 50)):
            self.last = moment
            return True
        return False


class PlainLines:
    """Prints a line every few seconds, and one at the end of each run."""

    def __init__(self, progress: RunProgress, console: Console, runs: Sequence[Run]) -> None:
        self.progress, self.console, self.throttle = progress, console, Throttle()
        self.told = [name for name in TOLD if len({run.config.flat()[name] for run in runs}) > 1]

    def record(self, run: Run, record: Record) -> None:
        """Print a line if one is due."""
        self.progress.record(run, record)
        if not self.throttle.due(now=record.round == run.config.settings.rounds):
            return
        parts = [f"{self._name(run)}: round {record.round} of {run.config.settings.rounds}"]
        if record.test_accuracy is not None:
            parts.append(f"accuracy {100 * record.test_accuracy:.2f} %")
        if rejected := self.progress.line_of(run).rejected_now:
            parts.append(f"{rejected} uploads rejected")
        self._print(", ".join(parts) + self._whole())

    def skip(self, run: Run) -> None:
        """Report that the run is skipped."""
        self.progress.skip(run)
        self._print(f"{self._name(run)}: skipped")

    def _name(self, run: Run) -> str:
        names = self.told if run.label in self.progress.lines else [*self.told, "lr"]  # trials differ in lr
        told = ", ".join(f"{name} {run.config.flat()[name]}" for name in dict.fromkeys(names))
        return f"{run.label}{f' ({told})' if told else ''}, seed {run.config.settings.seed}"

    def _whole(self) -> str:
        parts = [f"{self.progress.ended} of {self.progress.runs} runs"] if self.progress.runs > 1 else []
        if left := self.progress.seconds_left():
            parts.append(f"about {duration(left)} left")
        return f"; {', '.join(parts)}" if parts else ""

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
