"""Shared parts of the theory figures: panels, colours, axes, fitted lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedmim.report.curves import light_grid, save_figure
from fedmim.report.style import colour_of

INK = "#404040"


def method_colour(title: str) -> str:
    """The colour of a method by its title, the same as in all other figures."""
    return colour_of(title.lower())


@contextmanager
def two_panels(path: Path, title: str) -> Iterator[tuple[Axes, Axes]]:
    """Yields two panels side by side, then writes the figure."""
    figure = Figure(figsize=(11, 4.6), layout="constrained", dpi=150)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    left, right = figure.subplots(1, 2)
    yield left, right
    for axes in (left, right):
        _few_ticks(axes.xaxis)
        _few_ticks(axes.yaxis)
    save_figure(figure, path)


def finish_panel(
    axes: Axes, x: str, y: str, title: str = "", log: str = "xy", legend: dict[str, Any] | None = None
) -> None:
    """Set labels, a title, a light grid, a legend if anything has a label, and a log scale for the axes in `log`."""
    for axis in log:
        axes.set(**{f"{axis}scale": "log"})
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=9)
    light_grid(axes)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, **(legend or {}))


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Fit a line on a log-log plot; returns its slope and its factor."""
    exponent, intercept = np.polyfit(np.log(x), np.log(y), 1)
    return float(exponent), float(np.exp(intercept))


def plot_power_law(axes: Axes, x: Sequence[float], fit: tuple[float, float], colour: str, label: str = "") -> None:
    """Draw a fitted line over these x; without a label it is not in the legend."""
    exponent, factor = fit
    axes.plot(x, [factor * each**exponent for each in x], color=colour, linewidth=1, label=label or None)


def _few_ticks(axis: Axis) -> None:
    """Plain labels at 1, 2 and 5 on a logarithmic axis of few decades, where the default labels overlap."""
    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log" and high < 300 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
