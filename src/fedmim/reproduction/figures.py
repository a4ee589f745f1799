"""The figures in the paper's form, PNG and SVG: a panel a column, the common rate above, each one's own best below."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from fedmim.files import replacing
from fedmim.report.plot import smooth
from fedmim.report.style import DASHES, colour_of
from fedmim.reproduction.entries import TableEntry
from fedmim.reproduction.experiment import PaperExperiment, TableRow
from fedmim.reproduction.layout import FAIR_TITLES, data_title

Style = dict[str, Any]
FAR = 25.0  # points behind the best: rows further off, which have diverged, stand at the edge


def write_figures(experiment: PaperExperiment, entries: Sequence[TableEntry], folder: Path) -> list[Path]:
    """One figure a data set, or one for all where each has a single column."""
    data = [each for each in experiment.data if any(entry.cell.data == each for entry in entries)]
    single = len(experiment.columns) == 1
    written = []
    for group in [data] if single else [[each] for each in data]:
        chosen = [entry for entry in entries if entry.cell.data in group]
        one = single or len(experiment.data) == 1
        name = experiment.name if one else f"{experiment.name}-{group[0].replace(':', '-')}"
        draw = {"rounds": against_rounds, "rows": against_rows}.get(experiment.plot_against, against_setting)
        written += save(draw(experiment, chosen), folder / name)
    return written


def save(figure: Figure, path: Path) -> list[Path]:
    """As PNG and SVG, the latter the same bytes each time."""
    paths = [path.with_name(f"{path.name}.{ending}") for ending in ("png", "svg")]
    with mpl.rc_context({"svg.hashsalt": path.name}):
        for each in paths:
            with replacing(each) as temporary:
                metadata = {"Date": None} if each.suffix == ".svg" else None
                figure.savefig(temporary, format=each.suffix[1:], metadata=metadata)
            figure.set_layout_engine("none")  # it is laid out now, once for both
    return paths


def against_rounds(experiment: PaperExperiment, entries: Sequence[TableEntry]) -> Figure:
    """Accuracy or consistency against rounds: panels by column (or data set) and way of being fair."""
    consistency = experiment.figure == "consistency"
    styles = styles_of(entries)
    figure, places = panels_of(experiment, entries)
    for axes, own, leftmost in places:
        for entry in own:
            curve(axes, entry, "consistency" if consistency else "test_accuracy", styles[entry.cell.row.label])
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if consistency:
            axes.set_yscale("log")
        if leftmost:
            axes.set_ylabel("consistency" if consistency else "test accuracy")
    if not consistency:
        for axes, *_ in places:
            zoom(axes)
    finish(figure, experiment.title, experiment.rows)
    return figure


def against_rows(experiment: PaperExperiment, entries: Sequence[TableEntry]) -> Figure:
    """The table's figure of each row, and behind the means a line a seed, since the rows share a seed's clients."""
    labels = [row.label for row in experiment.rows if any(entry.cell.row.label == row.label for entry in entries)]
    figure, places = panels_of(experiment, entries, 0.8 + 0.22 * len(labels))
    for axes, own, leftmost in places:
        best = max(entry.main[0] for entry in own if entry.main)
        close = [entry for entry in own if entry.main and entry.main[0] > best - FAR]
        near = {entry.cell.row.label: entry.by_seed(experiment.figure) for entry in close}
        for seed in sorted({seed for values in near.values() for seed in values}):
            points = [(values[seed], labels.index(label)) for label, values in near.items() if seed in values]
            axes.plot(*zip(*points, strict=True), ".-", color="0.72", linewidth=0.8, zorder=1, label="one seed")
        axes.set_xlim(*axes.get_xlim())  # of these alone
        for entry in own:
            row, mean = entry.cell.row, entry.main[0] if entry.main else 0.0
            place, marker, name = (mean, "o", "mean") if row.label in near else (axes.get_xlim()[0], "<", "far behind")
            height = labels.index(row.label)
            axes.plot(place, height, marker, color=colour_of(row.method), clip_on=False, zorder=3, label=name)
            axes.annotate(f"{mean:.2f}", (1.02, height), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks(range(len(labels)), labels if leftmost else [])
        axes.set_xlabel("test accuracy (%)")
        if leftmost:
            axes.set_ylabel(experiment.row_title)
    finish(figure, experiment.title, experiment.rows)
    return figure


def against_setting(experiment: PaperExperiment, entries: Sequence[TableEntry]) -> Figure:
    """The table's figure against a setting of its columns, on a log axis."""
    setting = experiment.plot_against
    figure, grid = panels(1, 1)
    axes = grid[0, 0]
    styles = styles_of(entries)
    for label in dict.fromkeys(entry.cell.row.label for entry in entries):
        own = [entry for entry in entries if entry.cell.row.label == label and entry.main is not None]
        points = sorted((getattr(entry.run.config, setting), *(entry.main or (0, 0))) for entry in own)
        x, y, deviation = (np.array(values) for values in zip(*points, strict=True))
        axes.errorbar(x, y / 100, yerr=deviation / 100, marker="o", markersize=3.5, capsize=2, **styles[label])
    axes.set_xscale("log")
    axes.set_xticks(sorted({getattr(entry.run.config, setting) for entry in entries}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel({"lr": "local rate"}.get(setting, setting))
    axes.set_ylabel("test accuracy")
    percent(axes)
    finish(figure, experiment.title, experiment.rows)
    return figure


def curve(axes: Axes, entry: TableEntry, figure: str, style: Style) -> None:
    """The mean over seeds, smoothed, the raw one faint behind it, with the range of the seeds."""
    runs = [[(r["round"], r[figure]) for r in records if r[figure] is not None] for records in entry.results.records]
    length = min(map(len, runs))
    if not length:
        return
    rounds = [round for round, _ in runs[0][:length]]
    values = np.array([[value for _, value in run[:length]] for run in runs])  # (seeds, evaluations)
    smoothed = np.array([smooth(row) for row in values])
    axes.plot(rounds, values.mean(0), color=style["color"], alpha=0.18, linewidth=0.8, zorder=1)
    axes.plot(rounds, smoothed.mean(0), **style)
    if len(runs) > 1:
        axes.fill_between(rounds, smoothed.min(0), smoothed.max(0), color=style["color"], alpha=0.12, linewidth=0)


def styles_of(entries: Sequence[TableEntry]) -> dict[str, Style]:
    """A line for each row: the method's colour; variants of one method differ in dashes, many of them in colour."""
    methods = {entry.cell.row.label: entry.cell.row.method for entry in entries}
    styles: dict[str, Style] = {}
    for method in dict.fromkeys(methods.values()):
        own = [label for label, each in methods.items() if each == method]
        shades = mpl.colormaps["turbo"](np.linspace(0.08, 0.92, len(own)))
        for place, label in enumerate(own):
            many = len(own) > len(DASHES)
            colour = tuple(shades[place]) if many else colour_of(method)
            width = 2.2 if method == "fedmim" and not many else 1.5
            styles[label] = {
                "color": colour,
                "linestyle": DASHES[place % len(DASHES)],
                "linewidth": width,
                "zorder": 3 if method == "fedmim" else 2,
                "label": label,
            }
    return {label: styles[label] for label in methods}


def panels_of(
    experiment: PaperExperiment, entries: Sequence[TableEntry], height: float = 3.3
) -> tuple[Figure, list[tuple[Axes, list[TableEntry], bool]]]:
    """A figure, and its panels by column (or data set) and way of being fair, with the entries of each, and whether it
    is the leftmost. One that has none yet says so and is left out of the list."""
    places = list(dict.fromkeys((entry.cell.data, entry.cell.column.label) for entry in entries))
    fairs = [fair for fair in experiment.fair if any(entry.cell.fair == fair for entry in entries)]
    figure, grid = panels(len(fairs), len(places), height)
    made: list[tuple[Axes, list[TableEntry], bool]] = []
    for axes, (fair, (data, column)) in zip(grid.flat, product(fairs, places), strict=True):
        name = data_title(data) if len(experiment.columns) == 1 else f"{data_title(data)}, {column}"
        axes.set_title(f"{name}, {FAIR_TITLES[fair]}" if len(experiment.fair) > 1 else name, fontsize=10)
        here = (data, column, fair)
        own = [e for e in entries if (e.cell.data, e.cell.column.label, e.cell.fair) == here]
        if own:
            made.append((axes, own, (data, column) == places[0]))
        else:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "not run yet", transform=axes.transAxes, ha="center", color="grey")
    return figure, made


def panels(rows: int, columns: int, height: float = 3.3) -> tuple[Figure, np.ndarray]:
    """An empty figure of so many panels, those below each other with the same vertical axis, to be compared."""
    figure = Figure(figsize=(max(5.6, 4.3 * columns), 0.9 + height * rows), layout="constrained", dpi=150)
    grid = figure.subplots(rows, columns, squeeze=False, sharey="col")
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
    return figure, grid


def zoom(axes: Axes) -> None:
    """Percent, and the steep beginning out of sight where it would press all curves together."""
    lines = [line for each in axes.get_shared_y_axes().get_siblings(axes) for line in each.lines]
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in lines] or [np.zeros(1)])
    low, high = float(np.quantile(values, 0.06)), float(values.max())
    margin = 0.06 * (high - low) or 0.05
    axes.set_ylim(low - margin, high + margin)
    percent(axes)


def percent(axes: Axes) -> None:
    """Shares as percent."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def finish(figure: Figure, heading: str, rows: Sequence[TableRow] = ()) -> None:
    """One legend for all panels, in the order of the rows, and the title."""
    found = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    order = {row.label: place for place, row in enumerate(rows)}
    named = dict(sorted(found.items(), key=lambda each: order.get(each[0], 0)))
    width = figure.get_figwidth()  # inches, of which a letter takes about 0.08
    most = max(1, int(width / (0.65 + 0.08 * max(map(len, named), default=0))))
    lines = ceil(len(named) / most)
    columns = ceil(len(named) / max(1, lines))  # so that none stands alone in a last line
    figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=columns, frameon=False)
    figure.suptitle(fill(heading, int(width / 0.08)), x=0.01, ha="left", fontsize=11)
