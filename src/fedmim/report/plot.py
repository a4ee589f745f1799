"""The picture of a comparison: accuracy and consistency against rounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmim.files import replacing
from fedmim.report.results import Method
from fedmim.report.style import DASHES, colour_of


def comparison_plot(methods: Sequence[Method], title: str, path: Path) -> None:
    """Write a PNG with both curves for every method: smoothed, the raw ones faint behind, bands over seeds."""
    figure = Figure(figsize=(11, 4.6), layout="constrained", dpi=150)
    left, right = figure.subplots(1, 2)
    for method, dash in zip(methods, dashes(methods), strict=True):
        curve(left, method, "test_accuracy", dash)
        curve(right, method, "consistency", dash)
    left.set_ylabel("test accuracy")
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    right.set_ylabel("consistency (smaller is better)")
    right.set_yscale("log")
    _zoom(left, methods)
    for axes in (left, right):
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7), frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def curve(axes: Axes, method: Method, figure: str, dash: str) -> None:
    """One method's curve: the mean over seeds, smoothed, with the range of the seeds."""
    runs = [[(r["round"], r[figure]) for r in records if r[figure] is not None] for records in method.records]
    length = min(map(len, runs))
    if not length:
        return
    rounds = [round for round, _ in runs[0][:length]]
    values = np.array([[value for _, value in run[:length]] for run in runs])  # (seeds, evaluations)
    smoothed = np.array([smooth(row) for row in values])
    colour = colour_of(method.run.method)
    strong = method.run.method == "fedmim"
    width, order = (2.2, 3) if strong else (1.5, 2)
    axes.plot(rounds, values.mean(0), color=colour, alpha=0.18, linewidth=0.8, zorder=1)
    axes.plot(rounds, smoothed.mean(0), dash, color=colour, linewidth=width, label=method.label, zorder=order)
    if len(runs) > 1:
        axes.fill_between(rounds, smoothed.min(0), smoothed.max(0), color=colour, alpha=0.12, linewidth=0)


def smooth(values: np.ndarray) -> np.ndarray:
    """A running mean over a twentieth of the curve, shorter at its ends."""
    half = len(values) // 40
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    reach = np.minimum(half, np.minimum(at, len(values) - 1 - at))
    return np.asarray((sums[at + reach + 1] - sums[at - reach]) / (2 * reach + 1))


def dashes(methods: Sequence[Method]) -> list[str]:
    """A line style for each: variants of one method share its colour and differ in this."""
    seen: dict[str, int] = {}
    styles = []
    for method in methods:
        number = seen.get(method.run.method, 0)
        seen[method.run.method] = number + 1
        styles.append(DASHES[number % len(DASHES)])
    return styles


def _zoom(axes: Axes, methods: Sequence[Method]) -> None:
    """Leave the steep beginning out of sight where it would press all curves together."""
    values = [r["test_accuracy"] for method in methods for records in method.records for r in records]
    known = [value for value in values if value is not None]
    if known:
        low, high = float(np.quantile(known, 0.06)), max(known)
        margin = 0.06 * (high - low) or 0.05
        axes.set_ylim(low - margin, high + margin)
