"""Curves as pictures: the parts that all of them share, and the one that `fedmim compare` ends with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from fedmim.files import replacing
from fedmim.report.style import Style, styles
from fedmim.results.method_results import MethodResults
from fedmim.results.metrics import Records

FEW = 20  # so many points or fewer are marked, since a line needs two
AXES = {"rounds": "round", "bytes": "bytes sent", "seconds": "seconds of training"}


def comparison_plot(methods: Sequence[MethodResults], title: str, path: Path) -> None:
    """Write a PNG with both curves for every method: smoothed, the raw ones faint behind, bands over seeds."""
    figure = Figure(figsize=(11, 4.6), layout="constrained", dpi=150)
    left, right = figure.subplots(1, 2)
    for method, style in zip(methods, styles(method.run.method for method in methods), strict=True):
        curve(left, method, "test_accuracy", style)
        curve(right, method, "consistency", style)
    finish(left, methods, "test_accuracy")
    finish(right, methods, "consistency")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7), frameon=False)
    figure.suptitle(title.replace("$", r"\$"), x=0.01, ha="left", fontsize=11)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def curve(
    axes: Axes, method: MethodResults, figure: str, style: Style, axis: str = "rounds", width: float = 1.5
) -> None:
    """One method's curve: the mean over seeds, smoothed, with the range of the seeds."""
    kept = [
        at
        for at, rounds in enumerate(zip(*method.records, strict=False))
        if all(record[figure] is not None for record in rounds)
    ]
    if not kept:
        return
    x = np.mean([along(records, axis)[kept] for records in method.records], axis=0)
    values = np.array([[records[at][figure] for at in kept] for records in method.records])  # (seeds, evaluations)
    smoothed = np.array([smooth(row) for row in values])
    colour = style.colour
    strong, order = (1.45 * width, 3) if style.strong else (width, 2)
    label = method.label.replace("$", r"\$")
    axes.plot(x, values.mean(0), color=colour, alpha=0.18, linewidth=0.5 * width, zorder=1)
    (line,) = axes.plot(x, smoothed.mean(0), style.dash, color=colour, linewidth=strong, label=label, zorder=order)
    if len(x) <= FEW:
        line.set(marker=".", markersize=5 * width)
    if len(values) > 1:
        axes.fill_between(x, smoothed.min(0), smoothed.max(0), color=colour, alpha=0.12, linewidth=0)


def along(records: Records, axis: str) -> np.ndarray:
    """The horizontal place of each record: its round, or the bytes sent or seconds taken until then."""
    if axis == "rounds":
        return np.array([record["round"] for record in records], dtype=float)
    if axis == "bytes":
        return np.cumsum([record["bytes_up"] + record["bytes_down"] for record in records], dtype=float)
    return np.cumsum([record["seconds"] for record in records], dtype=float)


def finish(axes: Axes, methods: Sequence[MethodResults], figure: str, axis: str = "rounds") -> None:
    """Scales, labels and grid of a chart."""
    axes.set_xlabel(AXES[axis])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=axis == "rounds"))
    if axis == "bytes":
        axes.xaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))
    if figure == "test_accuracy":
        axes.set_ylabel("test accuracy")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        _zoom(axes, methods)
    elif figure == "consistency":
        axes.set_ylabel("consistency (smaller is better)")
        if any(record[figure] for method in methods for records in method.records for record in records):
            axes.set_yscale("log")  # with one client a round it is zero throughout
    else:
        axes.set_ylabel(figure.replace("train", "training").replace("_", " "))
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def smooth(values: np.ndarray) -> np.ndarray:
    """A running mean over a twentieth of the curve. Its window grows from one value at the steep beginning; at the end
    it looks back alone, so that the last value does not stick out."""
    half = len(values) // 40
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    reach = np.minimum(half, at)
    after = np.minimum(at + reach, len(values) - 1) + 1
    return np.asarray((sums[after] - sums[at - reach]) / (after - at + reach))


def _zoom(axes: Axes, methods: Sequence[MethodResults]) -> None:
    """Leave the steep beginning out of sight where it would press all curves together."""
    values = [r["test_accuracy"] for method in methods for records in method.records for r in records]
    known = [value for value in values if value is not None]
    if known:
        low, high = float(np.quantile(known, 0.06)), max(known)
        margin = 0.06 * (high - low) or 0.05
        axes.set_ylim(low - margin, high + margin)
