"""The figure of a search: validation accuracy against each searched setting, and the best so far by trial."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmim.experiments.search import Search
from fedmim.experiments.search_results import read_trials
from fedmim.report.curves import legend_and_title, panel_grid, percent_axis, save_png_and_svg
from fedmim.report.style import colour_of


def write_search(search: Search, trials: Path) -> list[Path]:
    """Write search.png and search.svg to the folder of the trials."""
    return save_png_and_svg(search_figure(search, read_trials(trials)), trials.with_name("search"))


def search_figure(search: Search, trials: list[dict[str, Any]]) -> Figure:
    """One panel per setting. Pruned trials are hollow; the best trial has a ring."""
    trials = [trial for trial in trials if trial["accuracy"] is not None]
    whole = [trial for trial in trials if trial["state"] == "complete"]
    colour = colour_of(search.run.method)
    figure, grid = panel_grid(1, 1 + len(search.space))
    best = max(whole, key=lambda trial: (trial["accuracy"], -trial["trial"]), default=None)
    for axes, (name, each) in zip(grid[0], search.space.items(), strict=False):
        choices = [str(choice) for choice in each.choices]
        for trial in trials:
            x = choices.index(str(trial[name])) if choices else trial[name]
            filled = trial["state"] == "complete"
            axes.plot(x, trial["accuracy"], "o", color=colour, fillstyle="full" if filled else "none", markersize=6)
            if trial is best:
                axes.plot(x, trial["accuracy"], "o", color="black", fillstyle="none", markersize=11)
        if choices:
            axes.set_xticks(range(len(choices)), choices, rotation=30, ha="right", fontsize=8)
        elif each.log:
            axes.set_xscale("log")
        axes.set_xlabel(name)
    last = grid[0, -1]
    best_so_far = list(accumulate((trial["accuracy"] for trial in whole), max))
    last.plot([trial["trial"] for trial in whole], best_so_far, color=colour)
    for state, style, label in (("complete", "full", "complete"), ("pruned", "none", "pruned")):
        own = [trial for trial in trials if trial["state"] == state]
        points = [trial["trial"] for trial in own], [trial["accuracy"] for trial in own]
        last.plot(*points, "o", color=colour, fillstyle=style, label=label)
    last.set_xlabel("trial (line: best so far)")
    last.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in grid[0]:
        percent_axis(axes)
    grid[0, 0].set_ylabel("validation accuracy")
    problem = search.run.config.problem
    legend_and_title(
        figure,
        f"{search.run.label} on {problem.short('data')}, {problem.split}: search on held-out training data",
    )
    return figure
