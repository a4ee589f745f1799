"""The live display: for each method its rounds, accuracy with a sparkline, time left, and uploads refused."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedmim.experiments.methods import Run
from fedmim.report.style import Style, styles
from fedmim.results.number_formats import clock

if TYPE_CHECKING:
    from fedmim.simulation.loop import Record

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.,-=+*#"
SPARKS = 24  # letters of a sparkline
BAR = 10  # the least width of a bar


@dataclass
class Line:
    """The runs of one label so far."""

    label: str
    style: Style
    total: int = 0  # rounds of all its runs
    seed: int | None = None  # of its present run
    done: dict[int, int] = field(default_factory=dict)  # seed -> rounds that have ended
    curves: dict[int, list[tuple[float, float]]] = field(default_factory=dict)  # seed -> part of the way, accuracy
    seconds: float = 0.0
    timed: int = 0  # the rounds that took these seconds
    refused: int = 0

    @property
    def left(self) -> int:
        """Rounds to go."""
        return self.total - sum(self.done.values())

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Of its present run."""
        return [] if self.seed is None else self.curves[self.seed]


class Board:
    """The table of all lines, drawn anew a few times a second."""

    def __init__(self, runs: Sequence[Run], console: Console) -> None:
        self.console = console
        self.start = time.monotonic()
        self.present: str | None = None
        self.runs, self.ended = len(runs), 0
        methods = {run.label: run.method for run in runs}
        looks = zip(methods, styles(methods.values()), strict=True)
        self.lines = {label: Line(label, style) for label, style in looks}
        for run in runs:  # the dicts get all their keys here: the display reads them in a thread of its own
            line = self.lines[run.label]
            line.total += run.config.rounds
            line.done[run.config.seed], line.curves[run.config.seed] = 0, []
        self.sparks = BLOCKS if console.encoding.lower().startswith("utf") else PLAIN

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""
        line, seed, rounds = self.lines[run.label], run.config.seed, run.config.rounds
        line.seed, line.done[seed] = seed, record.round
        line.seconds, line.timed = line.seconds + record.seconds, line.timed + 1
        line.refused += record.refused
        if record.test_accuracy is not None:
            line.curves[seed].append((record.round / rounds, record.test_accuracy))
        self.present = run.label
        self.ended += record.round == rounds

    def skip(self, run: Run) -> None:
        """A run was finished before."""
        self.lines[run.label].done[run.config.seed] = run.config.rounds
        self.ended += 1

    def seconds_left(self) -> float | None:
        """For all rounds to go, each at its method's pace, or the mean pace where that is not known yet."""
        paces = {line.label: line.seconds / line.timed for line in self.lines.values() if line.timed}
        if not paces:
            return None
        usual = sum(paces.values()) / len(paces)
        return sum(line.left * paces.get(line.label, usual) for line in self.lines.values())

    def __rich__(self) -> RenderableType:
        """What is drawn."""
        shown, hidden = self._shown()
        scale, refusals = self._scale(), any(line.refused for line in shown)
        rounds = max(2 * len(str(line.total)) + 1 for line in shown)
        # Columns and two spaces after each: names, rounds, accuracy, time and refusals always, the others if they fit.
        names = min(max(len(line.label) for line in shown), max(12, self.console.width // 4))
        spare = self.console.width - sum(width + 2 for width in (names, rounds, 7, 10, *([9] if refusals else [])))
        sparks, bars = spare >= SPARKS + 2, spare >= SPARKS + BAR + 4
        table = Table.grid(padding=(0, 2, 0, 0), expand=bars)
        table.add_column(no_wrap=True, overflow="ellipsis", width=names)
        if bars:
            table.add_column(ratio=1)
        for least in (rounds, 7, *([SPARKS] if sparks else []), 10, *([9] if refusals else [])):
            table.add_column(justify="left" if least == SPARKS else "right", no_wrap=True, min_width=least)
        for line in shown:
            cells = [self._name(line)]
            cells += [self._bar(line)] if bars else []
            cells += [self._rounds(line), self._accuracy(line)]
            cells += [Text(sparkline(line.curve, scale, self.sparks), style=line.style.colour)] if sparks else []
            cells += [self._time(line)]
            cells += [Text(f"{line.refused} refused" if line.refused else "", style="bold red")] if refusals else []
            table.add_row(*cells)
        more = [Text(f"and {hidden} more", style="dim")] if hidden else []
        return Group(table, *more, self._foot())

    def _name(self, line: Line) -> RenderableType:
        return Text(line.label, style=f"bold {line.style.colour}" if line.left else line.style.colour)

    def _bar(self, line: Line) -> RenderableType:
        colour, done = line.style.colour, line.total - line.left
        return ProgressBar(line.total, done, style="bright_black", complete_style=colour, finished_style=colour)

    def _rounds(self, line: Line) -> RenderableType:
        done = line.total - line.left
        return Text(f"{done}/{line.total}", style="" if done else "dim")

    def _accuracy(self, line: Line) -> RenderableType:
        return Text(f"{100 * line.curve[-1][1]:.2f} %" if line.curve else "", style="bold")

    def _time(self, line: Line) -> RenderableType:
        if line.left == 0:
            return Text(clock(line.seconds) if line.timed else "before", style="dim")
        if line.timed:
            return Text(f"{clock(line.left * line.seconds / line.timed)} left")
        return Text("waiting", style="dim")

    def _foot(self) -> Text:
        total = sum(line.total for line in self.lines.values())
        done = total - sum(line.left for line in self.lines.values())
        parts = [f"{self.ended} of {self.runs} runs", f"{done:,} of {total:,} rounds"]
        parts.append(f"{clock(time.monotonic() - self.start)} gone")
        left = self.seconds_left()
        if left:
            parts.append(f"{clock(left)} left")
        return Text(", ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")

    def _shown(self) -> tuple[list[Line], int]:
        """As many lines as the terminal has room for, the present one among them."""
        lines, room = list(self.lines.values()), max(1, self.console.height - 3)
        if len(lines) <= room:
            return lines, 0
        at = list(self.lines).index(self.present) if self.present else 0
        first = min(max(0, at - room + 2), len(lines) - room)
        return lines[first : first + room], len(lines) - room

    def _scale(self) -> tuple[float, float]:
        """The lowest and highest accuracy of all lines, the steep beginnings aside."""
        values = sorted(value for line in self.lines.values() for _, value in line.curve)
        return (values[len(values) // 20], values[-1]) if values else (0.0, 1.0)


def sparkline(curve: Sequence[tuple[float, float]], scale: tuple[float, float], letters: str = BLOCKS) -> str:
    """The curve in a few letters: as long as the part of the way that is gone, the mean of each piece as its height."""
    pieces: dict[int, list[float]] = {}
    for part, value in curve:
        pieces.setdefault(max(0, math.ceil(part * SPARKS) - 1), []).append(value)
    low, high = scale
    text, letter = "", " "
    for piece in range(max(pieces, default=-1) + 1):
        if piece in pieces:
            value = sum(pieces[piece]) / len(pieces[piece])
            height = (value - low) / (high - low) if high > low else 1.0
            letter = letters[min(len(letters) - 1, max(0, round(height * (len(letters) - 1))))]
        text += letter
    return text
