"""Charts for papers: one chart per file, as wide as a column or a page, with the fonts of a two-column paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedmim.errors import UserError, unknown
from fedmim.experiments.comparison import folder_names
from fedmim.report.curves import X_AXES, draw_curve, finish_axes, line_look, save_figure
from fedmim.report.skew import Skew, skew_of
from fedmim.report.style import label_styles
from fedmim.report.wording import group_title
from fedmim.results.grouping import RunGroup
from fedmim.results.loading import Warn
from fedmim.results.record_columns import is_timed

CHARTS = {
    "accuracy": "test_accuracy",
    "test-loss": "test_loss",
    "train-loss": "train_loss",
    "consistency": "consistency",
    "clients": None,  # the classes of each client
}
FORMATS = ("png", "svg", "pdf")
SIZES = {"column": (3.4, 2.5), "page": (7.0, 2.9)}  # inches; two columns and their gap make 7
FONTS: Any = {
    "font.family": "STIXGeneral",  # matches Times and is part of matplotlib
    "mathtext.fontset": "stix",
    **dict.fromkeys(("font.size", "axes.labelsize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    "pdf.fonttype": 42,  # publishers reject type 3
    "svg.hashsalt": "fedmim",
}


def write_charts(
    groups: Sequence[RunGroup],
    folder: Path,
    *,
    charts: Sequence[str] = tuple(CHARTS),
    axes: Sequence[str] = tuple(X_AXES),
    formats: Sequence[str] = ("png", "svg"),
    size: str = "column",
    told: Callable[[Path], None] = lambda path: None,
    warn: Warn = lambda message: None,
) -> None:
    """Write every chart against every axis in every format. With several groups, each has its own folder.

    Only groups with a simulated time have charts against it.
    `told` is called with each file, and `warn` with a message for each damaged file.
    """
    for what, given, known in (
        ("y", charts, CHARTS),
        ("x", axes, X_AXES),
        ("formats", formats, FORMATS),
        ("size", [size], SIZES),
    ):
        for name in given:
            if name not in known:
                raise unknown(what, name, known)
    if set(axes) == {"time"} and not any(map(_is_timed, groups)):
        raise UserError("x: no run has a simulated time, which needs speed_spread or deadline; use another axis")
    places = [folder / name for name in folder_names(list(map(group_title, groups)))] if len(groups) > 1 else [folder]
    for group, place in zip(groups, places, strict=True):
        place.mkdir(parents=True, exist_ok=True)
        with rc_context(FONTS):
            for name, figure in _figures(group, charts, axes, size, warn):
                for form in formats:
                    path = place / f"{name}.{form}"
                    save_figure(figure, path, dpi=300)
                    told(path)


def _figures(
    group: RunGroup, charts: Sequence[str], axes: Sequence[str], size: str, warn: Warn
) -> Iterator[tuple[str, Figure]]:
    for chart in charts:
        if chart == "clients":
            if skew := skew_of(group, warn):
                yield chart, _skew(skew, size)
        else:
            for axis in (each for each in axes if each != "time" or _is_timed(group)):
                yield f"{chart}-{axis}", _chart(group, chart, axis, size)


def _is_timed(group: RunGroup) -> bool:
    return any(is_timed(records) for line in group.lines for records in line.records)


def _chart(group: RunGroup, chart: str, axis: str, size: str) -> Figure:
    figure = Figure(figsize=SIZES[size], layout="constrained")
    axes = figure.subplots()
    name = CHARTS[chart] or ""
    styles = label_styles(group.methods)
    for method in group.lines:
        look = line_look(styles[method.label], method.label, width=1.0)
        draw_curve(axes, method.records, name, look, axis, raw_width=0.5)
    finish_axes(axes, [records for line in group.lines for records in line.records], name, axis)
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = max(1, min(len(labels), int(SIZES[size][0] * 17 / (longest + 6))))
    if handles:
        figure.legend(
            handles, labels, loc="outside upper center", ncols=columns, frameon=False, handlelength=2.2,
            columnspacing=1.2, borderaxespad=0.2,
        )  # fmt: skip
    return figure


def _skew(skew: Skew, size: str) -> Figure:
    width, height = SIZES[size]
    figure = Figure(figsize=(width, 0.72 * height), layout="constrained")
    axes = figure.subplots()
    shares = list(zip(*skew.shares, strict=True))  # (classes, clients)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_xlabel(f"{skew.total} clients, ordered by largest class")
    axes.set_ylabel("class")
    axes.set_xticks([])
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    bar = figure.colorbar(image, ax=axes, pad=0.02, format=PercentFormatter(1, symbol=" %"), ticks=[0, 0.5, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    return figure
