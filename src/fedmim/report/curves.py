"""Shared code of all matplotlib figures: smoothed curves, axes, panels, legends and files."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from operator import add
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from fedmim.experiments.run_folder import Records
from fedmim.files import replacing
from fedmim.report.style import Style
from fedmim.results.record_columns import column

FEW = 20  # curves with at most this many points have markers
MARKER = "."
STEEP, WASTE = 0.06, 0.5  # if this part of the values takes up more than this part of the axis, it is cut off
X_AXES = {"rounds": "round", "bytes": "bytes sent", "seconds": "seconds of training", "time": "simulated time"}
UNDATED: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same figure gives the same file


def line_look(style: Style, label: str, width: float = 1.5) -> dict[str, Any]:
    """The style of a line as keyword arguments for matplotlib."""
    weight = {"linewidth": 1.45 * width, "zorder": 3} if style.strong else {"linewidth": width, "zorder": 2}
    return {"label": literal(label), "color": style.colour, "linestyle": style.dash, **weight}


def draw_curve(
    axes: Axes,
    runs: Sequence[Records],
    field: str,
    look: dict[str, Any],
    x_axis: str = "rounds",
    raw_width: float = 0.75,
    mark_few: bool = True,
) -> None:
    """Draw the smoothed mean of a field over the runs, the raw mean faintly, and the range of the runs as a band."""
    columns = [column(records, field) for records in runs]
    kept = [at for at, values in enumerate(zip(*columns, strict=False)) if all(map(drawable, values))]
    if not kept:
        return
    x = np.mean([along(records, x_axis)[kept] for records in runs], axis=0)
    if np.isnan(x).any():
        return
    values = np.array([[values[at] for at in kept] for values in columns])  # (runs, evaluations)
    smoothed = np.array([smooth(row) for row in values])
    if not x[-1]:  # a reference against bytes: it sends none
        axes.axhline(smoothed.mean(0)[-1], **look)
        return
    axes.plot(x, values.mean(0), color=look["color"], alpha=0.18, linewidth=raw_width, zorder=1)
    (line,) = axes.plot(x, smoothed.mean(0), **look)
    if mark_few and len(x) <= FEW:
        line.set(marker=MARKER, markersize=10 * raw_width)
    if len(values) > 1:
        axes.fill_between(x, smoothed.min(0), smoothed.max(0), color=look["color"], alpha=0.12, linewidth=0)


def drawable(value: float | None) -> bool:
    """Whether a value exists and is not too large: matplotlib cannot draw values near the largest float."""
    return value is not None and abs(value) < 1e300


def along(records: Records, x_axis: str) -> np.ndarray:
    """The horizontal position of each record: its round, or the cumulative bytes, seconds or simulated time.

    It is NaN where the time is not simulated.
    """
    if x_axis == "rounds":
        return np.array(column(records, "round"), dtype=float)
    if x_axis == "bytes":
        sent = map(add, column(records, "bytes_up"), column(records, "bytes_down"))
        return np.cumsum(np.fromiter(sent, dtype=float))
    field = "simulated_time" if x_axis == "time" else "seconds"
    return np.cumsum(np.array(column(records, field), dtype=float))


def smooth(values: np.ndarray) -> np.ndarray:
    """A running mean over a twentieth of the curve. The window grows from one value at the start, where curves are
    steep. At the end it only looks back."""
    half = len(values) // 40
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    reach = np.minimum(half, at)
    after = np.minimum(at + reach, len(values) - 1) + 1
    return np.asarray((sums[after] - sums[at - reach]) / (after - at + reach))


def finish_axes(axes: Axes, runs: Sequence[Records], field: str, x_axis: str = "rounds") -> None:
    """Set the scales, labels and grid of a chart."""
    axes.set_xlabel(X_AXES[x_axis])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=x_axis == "rounds"))
    if x_axis == "bytes":
        axes.xaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))
    if field == "test_accuracy":
        axes.set_ylabel("test accuracy")
        zoom_on_accuracy(axes)
    elif field == "consistency":
        axes.set_ylabel("client drift (smaller is better)")
        if any(value for records in runs for value in column(records, field)):
            axes.set_yscale("log")  # with one client per round it is always zero
    else:
        axes.set_ylabel(field.replace("train", "training").replace("_", " "))
    axes.set_xlim(left=0)
    light_grid(axes)


def zoom_on_accuracy(axes: Axes) -> None:
    """Format as percent, and show everything that is drawn.

    Only if most of the axis would show the steep start is this part cut off, with a note. Markers are never cut off.
    """
    percent_axis(axes)
    panels = [each for each in axes.get_shared_y_axes().get_siblings(axes) if each.lines]
    lines = [line for each in panels for line in each.lines]
    if not lines:
        return
    low, high = min(each.dataLim.y0 for each in panels), max(each.dataLim.y1 for each in panels)
    start = float(np.quantile(np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in lines]), STEEP))
    cut = start - low > WASTE * (high - low) and not any(line.get_marker() == MARKER for line in lines)
    bottom = floor(100 * start) / 100 if cut else low
    margin = 0.06 * (high - bottom) or 0.05
    axes.set_ylim(bottom if cut else bottom - margin, high + margin)
    if cut:
        note = f"values below {100 * bottom:.0f} % are cut off"
        axes.text(0.99, 0.02, note, transform=axes.transAxes, ha="right", fontsize="x-small", color="0.4")


def percent_axis(axes: Axes) -> None:
    """Format fractions as percent."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def light_grid(axes: Axes) -> None:
    """A faint grid, and no frame at the top and right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def panel_grid(rows: int, columns: int, height: float = 3.3) -> tuple[Figure, np.ndarray]:
    """An empty figure with a grid of panels. The panels of a column share the vertical axis."""
    figure = Figure(figsize=(max(5.6, 4.3 * columns), 0.9 + height * rows), layout="constrained", dpi=150)
    grid = figure.subplots(rows, columns, squeeze=False, sharey="col")
    for axes in grid.flat:
        light_grid(axes)
    return figure, grid


def legend_and_title(figure: Figure, title: str, labels: Sequence[str] = ()) -> None:
    """Add the title, and one legend for all panels in the order of these labels."""
    each = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes]
    found = {label: handle for handles in each for handle, label in handles}
    order = sorted(found, key=lambda label: labels.index(label) if label in labels else 0)
    width = figure.get_figwidth()  # inches; a character is about 0.08 wide
    most = max(1, int(width / (0.65 + 0.08 * max(map(len, order), default=0))))
    lines = ceil(len(order) / most)
    columns = ceil(len(order) / max(1, lines))  # fill all lines evenly
    figure.legend([found[label] for label in order], order, loc="outside lower center", ncols=columns, frameon=False)
    figure.suptitle(fill(title, int(width / 0.08)), x=0.01, ha="left", fontsize=11)


def save_figure(figure: Figure, path: Path, dpi: float | str = "figure") -> None:
    """Write a figure in the format of its file name, without a date: the same figure gives the same file."""
    form = path.suffix[1:]
    with replacing(path) as temporary:
        figure.savefig(temporary, format=form, dpi=dpi, metadata=UNDATED.get(form))


def save_png_and_svg(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG. The SVG is reproducible."""
    paths = [path.with_name(f"{path.name}.{ending}") for ending in ("png", "svg")]
    with mpl.rc_context({"svg.hashsalt": path.name}):
        for each in paths:
            save_figure(figure, each)
            figure.set_layout_engine("none")  # use the same layout for both
    return paths


def literal(text: str) -> str:
    """Escape a text, so that matplotlib does not parse it as mathematics."""
    return text.replace("$", r"\$")
