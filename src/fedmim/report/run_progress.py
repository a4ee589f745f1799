"""The progress of runs and the time left, for the live table and for plain lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedmim.experiments.run import Run
from fedmim.experiments.run_cost import work_per_round
from fedmim.report.style import Style, label_styles

if TYPE_CHECKING:
    from fedmim.simulation.record import Record


@dataclass
class RunInProgress:
    """A run in progress."""

    run: Run
    done: int = 0  # rounds


@dataclass
class LabelProgress:
    """The progress of the runs of one label."""

    label: str
    style: Style
    total: int = 0  # rounds of all its runs
    ended: int = 0  # rounds of the runs that have ended
    running: dict[str, RunInProgress] = field(default_factory=dict)
    shown: str = ""  # the run of the curve: the first of those in progress
    curve: list[tuple[float, float]] = field(default_factory=list)  # fraction of its rounds, accuracy
    work: float = 0.0  # of all its runs, in units of work_per_round
    worked: float = 0.0  # of the runs that have ended
    seconds: float = 0.0  # of the rounds trained by this process
    timed: float = 0.0  # the work that took these seconds
    rejected: int = 0  # uploads
    failed: int = 0  # runs

    @property
    def left(self) -> int:
        """Rounds left."""
        return max(0, self.total - self.ended - sum(each.done for each in list(self.running.values())))

    @property
    def work_left(self) -> float:
        """Work left."""
        running = list(self.running.values())  # the live table reads this in another thread
        present = sum(work_per_round(each.run) * each.done for each in running)
        return max(0.0, self.work - self.worked - present)

    @property
    def pace(self) -> float | None:
        """Seconds per unit of work; None if unknown."""
        return self.seconds / self.timed if self.timed else None


class RunProgress:
    """The progress of several runs, `jobs` at a time. The `later` runs follow after them."""

    def __init__(self, runs: Sequence[Run], later: Sequence[Run] = (), jobs: int = 1) -> None:
        self.start = time.monotonic()
        self.first: float | None = None  # when the first round began
        self.last = 0.0  # when the latest round ended
        self.begun: set[str] = set()  # runs of which a round has ended
        self.jobs = jobs
        self.present: str | None = None
        self.runs, self.ended = len(runs), 0
        self.later = list(later)
        looks = label_styles({run.label: run.method for run in runs})
        self.lines = {label: LabelProgress(label, style) for label, style in looks.items()}
        for run in runs:
            line = self.lines[run.label]
            line.total += run.config.settings.rounds
            line.work += run.config.settings.rounds * work_per_round(run)

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""
        line, key = self.line_of(run), key_of(run)
        self.last = time.monotonic()
        if self.first is None:
            self.first = self.last - record.seconds
        self.begun.add(key)
        line.running.setdefault(key, RunInProgress(run)).done = record.round
        if line.shown not in line.running:
            line.shown, line.curve = key, []
        line.seconds, line.timed = line.seconds + record.seconds, line.timed + work_per_round(run)
        line.rejected += record.refused
        if line.shown == key and record.test_accuracy is not None:
            line.curve.append((record.round / run.config.settings.rounds, record.test_accuracy))
        self.present = line.label
        if record.round == run.config.settings.rounds:
            self.skip(run)

    def skip(self, run: Run) -> None:
        """A run has ended, was finished before, or stopped early."""
        line = self.line_of(run)
        self.ended += 1
        line.ended += run.config.settings.rounds
        line.worked += run.config.settings.rounds * work_per_round(run)
        line.running.pop(key_of(run), None)

    def fail(self, run: Run) -> None:
        """A run has failed: its rounds count as far as it came, and no time is left for it."""
        line = self.line_of(run)
        line.failed += 1
        stopped = line.running.pop(key_of(run), None)
        line.ended += stopped.done if stopped else 0
        line.worked += run.config.settings.rounds * work_per_round(run)

    def line_of(self, run: Run) -> LabelProgress:
        """The line of a run. All trials of a search share one line."""
        return self.lines.get(run.label) or self.lines[run.label.partition(", trial ")[0]]

    def seconds_left(self) -> float | None:
        """The time for the work left, from the pace of each label, or the mean pace if it is unknown, and from what
        is spent between the rounds."""
        paces = {line.label: line.pace for line in self.lines.values() if line.pace is not None}
        if not paces:
            return None
        usual = sum(paces.values()) / len(paces)
        left = [(line.label, line.work_left) for line in self.lines.values()]
        left += [(run.label, run.config.settings.rounds * work_per_round(run)) for run in self.later]
        return self._overhead() * sum(work * paces.get(label, usual) for label, work in left) / self.jobs

    def _overhead(self) -> float:
        """The time that all jobs had until the latest round, relative to the time of their rounds. The rest went to the
        start and end of runs, to checkpoints, and to waiting."""
        trained = sum(line.seconds for line in self.lines.values())
        if self.first is None or not trained:
            return 1.0
        jobs = min(self.jobs, len(self.begun))  # those that have told how long a round takes
        return max(1.0, jobs * (self.last - self.first) / trained)


def key_of(run: Run) -> str:
    """A text that no other run in progress has."""
    return f"{run.label} {run.identity()}"
