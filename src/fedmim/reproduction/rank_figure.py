"""The figure of the ranks: each row's mean rank, and its rank in every column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from fedmim.report.curves import light_grid, literal
from fedmim.report.style import colour_of
from fedmim.reproduction.ranks import RankedRow, rank_text

CLEAR = 0.05  # rows with a larger p-value over the settings are not told from the best


def rank_figure(rows: Sequence[RankedRow], methods: Mapping[str, str]) -> Figure:
    """Rows from the best to the worst. A hollow marker: the difference from the best is not significant over the
    settings."""
    figure = Figure(figsize=(8.6, 1.4 + 0.27 * len(rows)), layout="constrained", dpi=150)
    axes = figure.subplots()
    for height, row in enumerate(rows):
        colour, columns = colour_of(methods[row.label]), list(row.by_column().values())
        axes.plot([min(columns), max(columns)], [height] * 2, color=colour, alpha=0.35, linewidth=3, zorder=1)
        axes.plot(columns, [height] * len(columns), "|", color=colour, markersize=7, zorder=2)
        clear = row.p_settings is not None and row.p_settings < CLEAR
        axes.plot(row.mean, height, "o", color=colour, markerfacecolor=colour if clear else "white", zorder=3)
        told = f"{row.mean:.1f}" + (f"   −{row.behind:.1f}   {rank_text(row.p_settings)}" if height else "")
        axes.annotate(told, (1.02, height), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axes.annotate("rank   points   p", (1.02, -0.9), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -1.3)
    axes.set_yticks(range(len(rows)), [literal(row.label) for row in rows])
    axes.set_xlabel("mean rank (1 is the best); bars and ticks: the settings; p: over the settings")
    light_grid(axes)
    return figure
