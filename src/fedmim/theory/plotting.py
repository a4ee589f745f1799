"""What the figures of the theory share: the methods they show, panels, axes, fitted lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedmim.files import replacing
from fedmim.report.style import colour_of
from fedmim.theory.constants import Inertia

# FedMIM as in the paper's best row, and the methods that it contains.
SHOWN_METHODS = {"FedAvg": Inertia(), "FedCM": Inertia((0.9,)), "FedMIM": Inertia((0.6, 0.3), (0.9, 0.1))}
HALF_INERTIA = Inertia((0.3, 0.2), (0.9, 0.1))  # A = 1/2, a memory of a few rounds
INK = "#404040"


def method_colour(title: str) -> str:
    """The colour of a method by its title, the same as in all other figures."""
    return colour_of(title.lower())


def two_panels(title: str) -> tuple[Figure, Axes, Axes]:
    """A figure with two panels side by side."""
    figure = Figure(figsize=(11, 4.6), layout="constrained", dpi=150)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    left, right = figure.subplots(1, 2)
    return figure, left, right


def label_axes(axes: Axes, x: str, y: str, title: str = "", log: str = "xy") -> None:
    """Set labels, a title, a light grid, no box, and a logarithmic scale for the axes named in `log`."""
    for axis in log:
        axes.set(**{f"{axis}scale": "log"})
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def add_legend(axes: Axes, **options: Any) -> None:
    """A small legend without a frame."""
    axes.legend(frameon=False, fontsize=8, **options)


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The line through the points on a log-log plot: its slope, and its factor."""
    exponent, intercept = np.polyfit(np.log(x), np.log(y), 1)
    return float(exponent), float(np.exp(intercept))


def plot_power_law(axes: Axes, x: Sequence[float], fit: tuple[float, float], colour: str, label: str = "") -> None:
    """Draw a fitted line through these x; without a label it is not in the legend."""
    exponent, factor = fit
    axes.plot(x, [factor * each**exponent for each in x], color=colour, linewidth=1, label=label or None)


def save_png(figure: Figure, path: Path) -> None:
    """Write the figure, whole or not at all."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            _few_ticks(axis)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def _few_ticks(axis: Axis) -> None:
    """Plain labels at 1, 2 and 5 on a logarithmic axis of few decades, where the usual ones would crowd."""
    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log" and high < 300 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
