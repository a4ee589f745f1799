"""The live progress table: rounds, accuracy with a sparkline, time left and rejected uploads of each method."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedmim.report.run_progress import LabelProgress, RunProgress
from fedmim.results.number_formats import clock

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.,-=+*#"
SPARKS = 24  # characters of a sparkline
BAR = 10  # minimum width of a bar


class Board:
    """The table of all labels, redrawn several times per second."""

    def __init__(self, progress: RunProgress, console: Console) -> None:
        self.progress, self.console = progress, console
        self.sparks = BLOCKS if console.encoding.lower().startswith("utf") else PLAIN

    def __rich__(self) -> RenderableType:
        """The table as it is now."""
        shown, hidden = self._shown()
        scale, rejections = self._scale(), any(line.rejected for line in shown)
        rounds = max(2 * len(str(line.total)) + 1 for line in shown)
        # Each column is followed by two spaces. Sparklines and bars are omitted if they do not fit.
        names = min(max(len(line.label) for line in shown), max(12, self.console.width // 4))
        spare = self.console.width - sum(width + 2 for width in (names, rounds, 7, 10, *([10] if rejections else [])))
        sparks, bars = spare >= SPARKS + 2, spare >= SPARKS + BAR + 4
        table = Table.grid(padding=(0, 2, 0, 0), expand=bars)
        table.add_column(no_wrap=True, overflow="ellipsis", width=names)
        if bars:
            table.add_column(ratio=1)
        for least in (rounds, 7, *([SPARKS] if sparks else []), 10, *([10] if rejections else [])):
            table.add_column(justify="left" if least == SPARKS else "right", no_wrap=True, min_width=least)
        for line in shown:
            colour, done = line.style.colour, line.total - line.left
            curve = line.curve  # another run may start in the meantime
            cells: list[RenderableType] = [Text(line.label, style=f"bold {colour}" if line.left else colour)]
            cells += [self._bar(line)] if bars else []
            cells += [Text(f"{done}/{line.total}", style="" if done else "dim")]
            cells += [Text(f"{100 * curve[-1][1]:.2f} %" if curve else "", style="bold")]
            cells += [Text(sparkline(curve, scale, self.sparks), style=colour)] if sparks else []
            cells += [self._time(line)]
            if rejections:
                cells.append(Text(f"{line.rejected} rejected" if line.rejected else "", style="bold red"))
            table.add_row(*cells)
        more = [Text(f"and {hidden} more", style="dim")] if hidden else []
        return Group(table, *more, self._foot())

    def _bar(self, line: LabelProgress) -> RenderableType:
        colour, done = line.style.colour, line.total - line.left
        return ProgressBar(line.total, done, style="bright_black", complete_style=colour, finished_style=colour)

    def _time(self, line: LabelProgress) -> RenderableType:
        if line.failed and not line.running:
            return Text(f"{line.failed} failed", style="bold red")
        if line.left == 0:
            return Text(clock(line.seconds) if line.timed else "finished", style="dim")
        if line.pace is not None:
            return Text(f"{clock(line.work_left * line.pace / max(1, len(line.running)))} left")
        return Text("waiting", style="dim")

    def _foot(self) -> Text:
        total = sum(line.total for line in self.progress.lines.values())
        done = total - sum(line.left for line in self.progress.lines.values())
        failed = sum(line.failed for line in self.progress.lines.values())
        parts = [f"{self.progress.ended} of {self.progress.runs} runs"]
        parts += [f"{failed} failed"] if failed else []
        parts.append(f"{done:,} of {total:,} rounds")
        parts.append(f"{clock(time.monotonic() - self.progress.start)} elapsed")
        if left := self.progress.seconds_left():
            parts.append(f"{clock(left)} left")
        return Text(", ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")

    def _shown(self) -> tuple[list[LabelProgress], int]:
        """As many lines as fit the terminal, including the current one, and the number of hidden lines."""
        lines, room = list(self.progress.lines.values()), max(1, self.console.height - 3)
        if len(lines) <= room:
            return lines, 0
        present = self.progress.present
        at = list(self.progress.lines).index(present) if present else 0
        first = min(max(0, at - room + 2), len(lines) - room)
        return lines[first : first + room], len(lines) - room

    def _scale(self) -> tuple[float, float]:
        """The lowest and highest accuracy of all lines, without the lowest 5 %."""
        values = sorted(value for line in self.progress.lines.values() for _, value in line.curve)
        return (values[len(values) // 20], values[-1]) if values else (0.0, 1.0)


def sparkline(curve: Sequence[tuple[float, float]], scale: tuple[float, float], letters: str = BLOCKS) -> str:
    """The curve as text. Its length shows the progress of the run; each character is the mean of a section."""
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
