"""Show the progress of runs: a live table on a terminal, one line in a notebook, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from fedmim.display import LiveLine
from fedmim.experiments.run import Run
from fedmim.experiments.works import Display
from fedmim.report.board import Board
from fedmim.report.run_progress import RunProgress, key_of
from fedmim.results.number_formats import duration

if TYPE_CHECKING:
    from fedmim.simulation.record import Record

POLL, REPEAT = 0.25, 30.0  # seconds; a status that does not change is printed again after REPEAT
TOLD = ("data", "split", "lr")  # settings that a line shows if the runs differ in them


@contextmanager
def watching(
    runs: Sequence[Run], console: Console, quiet: bool = False, later: Sequence[Run] = (), jobs: int = 1
) -> Iterator[Display]:
    """Show the progress of these runs, `jobs` at a time. The time left includes the `later` runs."""
    progress = RunProgress(runs, later, jobs)
    if quiet:
        yield progress
    elif runs and console.is_interactive:
        with Live(Board(progress, console), console=console, refresh_per_second=4):
            yield progress
    elif console.is_jupyter:
        with LiveLine(console=console) as line:
            yield InPlace(progress, console, [*runs, *later], line)
    else:
        yield PlainLines(progress, console, [*runs, *later])


@contextmanager
def status_line(console: Console, first: str = "") -> Iterator[Callable[[str], None]]:
    """A function that shows the current activity, `first` to begin with.

    It is one live line on a terminal. In a notebook it is shown when it changes. Otherwise it is printed every few
    seconds, also while nothing changes.
    """
    if console.is_jupyter:
        with LiveLine(2.0, console) as line:
            yield line.show
        return
    if console.is_interactive:
        with console.status(first) as status:
            yield status.update
        return
    latest, ended = [first], Event()
    thread = Thread(target=_print_latest, args=(latest, ended, console), daemon=True)
    thread.start()
    try:
        yield lambda text: latest.__setitem__(0, text)
    finally:
        ended.set()
        thread.join()


def _print_latest(latest: list[str], ended: Event, console: Console) -> None:
    throttle, told = Throttle(), ""
    while not ended.wait(POLL):
        unchanged = latest[0] == told and time.monotonic() - throttle.last < REPEAT
        if latest[0] and not unchanged and throttle.due():
            told = latest[0]
            console.print(told, markup=False, highlight=False)


class Throttle:
    """Decides when the next line is due: every 2 seconds at first, later less often, to keep logs short."""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()

    def due(self) -> bool:
        """Whether a line is due."""
        moment = time.monotonic()
        if moment - self.last >= min(60.0, max(2.0, (moment - self.start) / 50)):
            self.last = moment
            return True
        return False


class PlainLines:
    """Prints a line every few seconds, and one at the end of each run."""

    def __init__(self, progress: RunProgress, console: Console, runs: Sequence[Run]) -> None:
        self.progress, self.console, self.throttle = progress, console, Throttle()
        self.latest: dict[str, str] = {}  # the last line of each run in progress
        self.rejected: dict[str, int] = {}  # uploads of each run in progress
        self.told = [name for name in TOLD if len({run.config.flat()[name] for run in runs}) > 1]

    def record(self, run: Run, record: Record) -> None:
        """Print a line if one is due, and with several jobs one for each run in progress."""
        key, last = key_of(run), record.round == run.config.settings.rounds
        self._take(run, record)
        due = self.throttle.due()
        for other in [each for each in self.latest if each != key and due]:
            self._print(self.latest[other])
        if due or last:
            self._print(self.latest[key] + self._whole())
        if last:
            self._forget(key)

    def skip(self, run: Run) -> None:
        """Report that the run is skipped, or stops early."""
        last = self.latest.get(key_of(run))
        self._forget(key_of(run))
        self.progress.skip(run)
        self._print(f"{last}; stopped early" if last else f"{self._name(run)}: skipped")

    def fail(self, run: Run) -> None:
        """Report that the run has failed; why is told at the end."""
        self._forget(key_of(run))
        self.progress.fail(run)
        self._print(f"{self._name(run)}: failed")

    def _take(self, run: Run, record: Record) -> None:
        """Make the line of a run in progress."""
        key = key_of(run)
        rejected = self.rejected[key] = self.rejected.get(key, 0) + record.refused
        self.progress.record(run, record)
        parts = [f"{self._name(run)}: round {record.round} of {run.config.settings.rounds}"]
        if record.test_accuracy is not None:
            parts.append(f"accuracy {100 * record.test_accuracy:.2f} %")
        if rejected:
            parts.append(f"{rejected} uploads rejected")
        self.latest[key] = ", ".join(parts)

    def _forget(self, key: str) -> None:
        self.latest.pop(key, None)
        self.rejected.pop(key, None)

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


class InPlace(PlainLines):
    """Shows all that is told on one line, for notebooks."""

    def __init__(self, progress: RunProgress, console: Console, runs: Sequence[Run], line: LiveLine) -> None:
        super().__init__(progress, console, runs)
        self.line = line

    def record(self, run: Run, record: Record) -> None:
        """Show the round, and with several jobs only that of the last run that told one."""
        self._take(run, record)
        self._print(self.latest[key_of(run)] + self._whole())
        if record.round == run.config.settings.rounds:
            self._forget(key_of(run))

    def _print(self, text: str) -> None:
        self.line.show(text)
