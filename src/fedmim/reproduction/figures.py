"""The figures in the form of the paper, as PNG and SVG: one panel per column, with the shared learning rate above and
the tuned settings below."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from fedmim.experiments.methods import split_name
from fedmim.report.curves import (
    draw_curve,
    legend_and_title,
    panel_grid,
    percent_axis,
    save_png_and_svg,
    zoom_on_accuracy,
)
from fedmim.report.style import colour_of, dashes_of
from fedmim.reproduction.experiment import PaperExperiment
from fedmim.reproduction.layout import FAIR_TITLES, Layout, TableEntry, place_title
from fedmim.reproduction.rank_figure import rank_figure
from fedmim.reproduction.ranks import ranked_rows

WIDEST = 4  # panels side by side, if they can be below each other
FAR = 25.0  # rows more points than this behind the best are drawn at the edge; they diverged


def write_paper_figures(layout: Layout, folder: Path) -> list[Path]:
    """One figure per data set, or one for all of them if there is a single column."""
    experiment = layout.experiment
    if experiment.plot_against == "ranks":
        methods = {row.label: row.method for row in experiment.rows}
        figure = rank_figure(ranked_rows(layout), methods)
        figure.suptitle(experiment.title, x=0.01, ha="left", fontsize=11)
        return save_png_and_svg(figure, folder / experiment.name)
    known = {"rounds": against_rounds, "rows": against_rows, "x": against_x}
    draw = known.get(experiment.plot_against, against_setting)
    single = len(experiment.columns) == 1
    written = []
    for group in [layout.data] if single else [[each] for each in layout.data]:
        figure = draw(experiment, [entry for entry in layout.entries if entry.cell.data in group])
        legend_and_title(figure, experiment.title, [row.line or row.label for row in experiment.rows])
        one = single or len(experiment.data) == 1
        name = experiment.name if one else f"{experiment.name}-{group[0].replace(':', '-')}"
        written += save_png_and_svg(figure, folder / name)
    return written


def against_rounds(experiment: PaperExperiment, entries: Sequence[TableEntry]) -> Figure:
    """Accuracy or client drift against rounds. One panel per column (or data set) and kind of settings."""
    consistency = experiment.figure == "consistency"
    field = "consistency" if consistency else "test_accuracy"
    looks = looks_of(entries)
    figure, places = panels_of(experiment, entries)
    for axes, own, leftmost in places:
        for entry in own:
            look = looks[entry.cell.row.label]
            draw_curve(axes, entry.results.records, field, look, raw_width=0.8, mark_few=False)
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if consistency:
            axes.set_yscale("log")
        if leftmost:
            axes.set_ylabel("client drift" if consistency else "test accuracy")
    if not consistency:
        for axes, *_ in places:
            zoom_on_accuracy(axes)
    return figure


def against_rows(experiment: PaperExperiment, entries: Sequence[TableEntry]) -> Figure:
    """The metric of each row. Grey lines connect the values of one seed, since all rows use the same clients."""
    labels = [row.label for row in experiment.rows if any(entry.cell.row.label == row.label for entry in entries)]
    figure, places = panels_of(experiment, entries, 0.8 + 0.22 * len(labels))
    for axes, own, leftmost in places:
        best = max((entry.main[0] for entry in own if entry.main), default=0.0)
        close = [entry for entry in own if entry.main and entry.main[0] > best - FAR]
        near = {entry.cell.row.label: entry.by_seed(experiment.figure) for entry in close}
        for seed in sorted({seed for values in near.values() for seed in values}):
            points = [(values[seed], labels.index(label)) for label, values in near.items() if seed in values]
            axes.plot(*zip(*points, strict=True), ".-", color="0.72", linewidth=0.8, zorder=1, label="one seed")
        axes.set_xlim(*axes.get_xlim())  # without the rows far behind
        for entry in own:
            row, mean = entry.cell.row, entry.main[0] if entry.main else 0.0
            place, marker, name = (mean, "o", "mean") if row.label in near else (axes.get_xlim()[0], "<", "far behind")
            height = labels.index(row.label)
            axes.plot(place, height, marker, color=colour_of(row.method), clip_on=False, zorder=3, label=name)
            told = f"{mean:.2f}" if entry.main else entry.results.text(experiment.figure)
            axes.annotate(told, (1.02, height), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks(range(len(labels)), labels if leftmost else [])
        axes.set_xlabel("test accuracy (%)")
        if leftmost:
            axes.set_ylabel(experiment.row_title)
    return figure


def against_x(experiment: PaperExperiment, entries: Sequence[TableEntry]) -> Figure:
    """The metric of the rows against their numbers, one line for the rows of each line, one panel per column."""
    figure, places = panels_of(experiment, entries)
    names = list(dict.fromkeys(row.line for row in experiment.rows))
    shades = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(names)))
    for axes, own, leftmost in places:
        for place, name in enumerate(names):
            points = sorted((e.cell.row.x, *e.main) for e in own if e.cell.row.line == name and e.main)
            if points:
                x, y, deviation = (np.array(values) for values in zip(*points, strict=True))
                axes.errorbar(x, y / 100, deviation / 100, color=shades[place], label=name, marker="o", markersize=3)
        axes.set_xlabel(experiment.x_title)
        percent_axis(axes)
        if leftmost:
            axes.set_ylabel("test accuracy")
    return figure


def against_setting(experiment: PaperExperiment, entries: Sequence[TableEntry]) -> Figure:
    """The metric against a setting of the columns, on a log axis."""
    setting = experiment.plot_against
    figure, grid = panel_grid(1, 1)
    axes = grid[0, 0]
    looks = looks_of(entries)
    for label in dict.fromkeys(entry.cell.row.label for entry in entries):
        own = [entry for entry in entries if entry.cell.row.label == label and entry.main is not None]
        if not own:  # all diverged
            continue
        points = sorted((entry.results.run.config.flat()[setting], *(entry.main or (0, 0))) for entry in own)
        x, y, deviation = (np.array(values) for values in zip(*points, strict=True))
        axes.errorbar(x, y / 100, yerr=deviation / 100, marker="o", markersize=3.5, capsize=2, **looks[label])
    axes.set_xscale("log")
    axes.set_xticks(sorted({entry.results.run.config.flat()[setting] for entry in entries}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel({"lr": "local learning rate"}.get(setting, setting))
    axes.set_ylabel("test accuracy")
    percent_axis(axes)
    return figure


def looks_of(entries: Sequence[TableEntry]) -> dict[str, dict[str, Any]]:
    """The line style of each row: the colour of its method. Variants, also with wrappers, differ in dashes; many
    variants, in colour."""
    methods = {entry.cell.row.label: split_name(entry.cell.row.method)[0] for entry in entries}
    looks: dict[str, dict[str, Any]] = {}
    for method in dict.fromkeys(methods.values()):
        own = [label for label, each in methods.items() if each == method]
        dashes = dashes_of(method)
        many, strong = len(own) > len(dashes) > 1, method == "fedmim"
        shades = mpl.colormaps["turbo"](np.linspace(0.08, 0.92, len(own)))
        for place, label in enumerate(own):
            looks[label] = {
                "label": label,
                "color": tuple(shades[place]) if many else colour_of(method),
                "linestyle": dashes[place % len(dashes)],
                "linewidth": 2.2 if strong and not many else 1.5,
                "zorder": 3 if strong else 2,
            }
    return {label: looks[label] for label in methods}


def panels_of(
    experiment: PaperExperiment, entries: Sequence[TableEntry], height: float = 3.3
) -> tuple[Figure, list[tuple[Axes, list[TableEntry], bool]]]:
    """A figure, and for each panel (column or data set, and kind of settings) its axes, its entries, and whether it is
    the leftmost. Panels without entries show "not run yet" and are not in the list."""
    places = list(dict.fromkeys((entry.cell.data, entry.cell.column.label) for entry in entries))
    fairs = [fair for fair in experiment.fair if any(entry.cell.fair == fair for entry in entries)]
    wrapped = len(fairs) == 1 and len(places) > WIDEST  # one kind of settings can have several lines of panels
    across = ceil(len(places) / ceil(len(places) / WIDEST)) if wrapped else len(places)
    figure, grid = panel_grid(ceil(len(fairs) * len(places) / across), across, height)
    for unused in grid.flat[len(fairs) * len(places) :]:
        unused.set_axis_off()
    made: list[tuple[Axes, list[TableEntry], bool]] = []
    for axes, (fair, (data, column)) in zip(grid.flat, product(fairs, places), strict=False):
        name = place_title(experiment, data, column)
        axes.set_title(f"{name}, {FAIR_TITLES[fair]}" if len(experiment.fair) > 1 else name, fontsize=10)
        own = [e for e in entries if (e.cell.data, e.cell.column.label, e.cell.fair) == (data, column, fair)]
        if own:
            made.append((axes, own, places.index((data, column)) % across == 0))
        else:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "not run yet", transform=axes.transAxes, ha="center", color="grey")
    return figure, made
