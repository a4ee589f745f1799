"""The figure of `fedmim compare`: accuracy and client drift of every method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedmim.report.curves import draw_curve, finish_axes, line_look, literal, save_figure
from fedmim.report.style import styles
from fedmim.results.method_results import MethodResults


def comparison_plot(methods: Sequence[MethodResults], title: str, path: Path) -> None:
    """Write a PNG with both curves of every method: smoothed, with faint raw curves and bands over seeds."""
    figure = Figure(figsize=(11, 4.6), layout="constrained", dpi=150)
    panels = figure.subplots(1, 2)
    lines = zip(methods, styles(method.run.method for method in methods), strict=True)
    looks = [line_look(style, method.label) for method, style in lines]
    for axes, field in zip(panels, ("test_accuracy", "consistency"), strict=True):
        for method, look in zip(methods, looks, strict=True):
            draw_curve(axes, method.records, field, look)
        finish_axes(axes, [records for method in methods for records in method.records], field)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7), frameon=False)
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11)
    save_figure(figure, path)
