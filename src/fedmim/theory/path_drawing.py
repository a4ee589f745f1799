"""Parts of the figures of local paths in the plane: the landscape, the clients' steps, the global models, labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from torch import Tensor

from fedmim.theory.local_paths import LocalPaths
from fedmim.theory.plotting import INK, method_colour
from fedmim.theory.quadratics import QuadraticProblem

CLIENT_COLOURS = ("#0072b2", "#b8860b")  # apart with any kind of colour blindness
HALO = [withStroke(linewidth=3, foreground="white")]
CLIENT_MARKERS = ("o", "s")


def empty_figure(width: float, height: float) -> Figure:
    """An empty figure with room around its panels."""
    figure = Figure(figsize=(width, height), dpi=150)
    figure.set_layout_engine("constrained", h_pad=0.1, w_pad=0.08)
    return figure


def draw_landscape(
    axes: Axes,
    problem: QuadraticProblem,
    window: tuple[tuple[float, float], tuple[float, float]],
    levels: Sequence[float],
) -> None:
    """Contour lines of the global loss, the clients' optima and the global optimum."""
    x, y = np.meshgrid(*(np.linspace(*bounds, 200) for bounds in window))
    height = problem.value(torch.from_numpy(np.stack([x, y], axis=-1))).numpy() - problem.lowest
    axes.contour(x, y, height, levels=levels, colors="#d8d8d8", linewidths=1, zorder=0)
    for client, (optimum, colour) in enumerate(zip(problem.optima, CLIENT_COLOURS, strict=True)):
        axes.plot(*optimum, "X", color=colour, markersize=9, linestyle="", label=f"optimum of client {client + 1}")
    axes.plot(*problem.optimum, "*", color=INK, markersize=13, linestyle="", label="global optimum", zorder=5)
    axes.set(xlim=window[0], ylim=window[1], xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_color("#c0c0c0")


def draw_local_steps(axes: Axes, local: Tensor, size: float) -> None:
    """The local steps of both clients in one round."""
    known = axes.get_legend_handles_labels()[1]
    for client, (steps, colour) in enumerate(zip(local, CLIENT_COLOURS, strict=True)):
        label = f"local steps of client {client + 1}"
        look: dict[str, Any] = {"color": colour, "linewidth": 1.2, "markersize": size, "zorder": 3}
        axes.plot(*steps.T, marker=CLIENT_MARKERS[client], label="" if label in known else label, **look)


def draw_global_models(axes: Axes, name: str, models: Tensor) -> None:
    """The global models."""
    look: dict[str, Any] = {
        "color": method_colour(name),
        "linewidth": 2.2,
        "markersize": 7,
        "markeredgecolor": "white",
        "zorder": 4,
    }
    axes.plot(*models.T, "o-", label="global model", **look)


def draw_starts(axes: Axes, run: LocalPaths) -> None:
    """Lines from each global model to the point where the clients start, if that is another."""
    for x, start in zip(run.models, run.local[:, 0, 0], strict=False):
        if not torch.equal(x, start):
            axes.plot(*torch.stack([x, start]).T, ":", color="black", linewidth=1.4, zorder=5)


def draw_arrow(axes: Axes, start: Tensor, end: Tensor, colour: str, style: str = "solid") -> None:
    """An arrow between two points."""
    look: dict[str, Any] = {
        "arrowstyle": "-|>",
        "color": colour,
        "linewidth": 2.4,
        "linestyle": style,
        "shrinkA": 0,
        "shrinkB": 2,
    }
    axes.annotate("", tuple(end.tolist()), tuple(start.tolist()), arrowprops=look, zorder=5)


def add_label(axes: Axes, point: Tensor, text: str, shift: tuple[float, float]) -> None:
    """A text beside a point, `shift` typographic points away."""
    axes.annotate(
        text,
        tuple(point.tolist()),
        shift,
        textcoords="offset points",
        fontsize=12,
        color="black",
        path_effects=HALO,
        zorder=7,
    )
