"""What the pictures of the theory share: panels, colours, slopes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedmim.files import replacing
from fedmim.report.style import colour_of
from fedmim.theory.problem import Inertia

# FedMIM as in the paper's best row, and the methods that it contains.
METHODS = {"FedAvg": Inertia(), "FedCM": Inertia((0.9,)), "FedMIM": Inertia((0.6, 0.3), (0.9, 0.1))}
HALF = Inertia((0.3, 0.2), (0.9, 0.1))  # A = 1/2, a memory of a few rounds
INK = "#404040"


def colour(label: str) -> str:
    """The colour of a method, the same as in all other pictures."""
    return colour_of(label.lower())


def panels(title: str, count: int = 2) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels side by side."""
    figure = Figure(figsize=(11, 4.6), layout="constrained", dpi=150)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, list(np.atleast_1d(figure.subplots(1, count)))


def logarithmic(axes: Axes, x: str, y: str) -> None:
    """Both axes logarithmic, labelled."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    label(axes, x, y)


def label(axes: Axes, x: str, y: str) -> None:
    """Labels, a light grid and no box."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, whole."""
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


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The line through the points on a log-log plot: its slope, and its factor."""
    exponent, intercept = np.polyfit(np.log(x), np.log(y), 1)
    return float(exponent), float(np.exp(intercept))
