"""Inertia, look-ahead and leap in pictures: two clients in the plane, as in Figure 1 of Liu et al. 2023."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedmim.algorithms import Algorithm, FedAvg, FedMIM, Leap, Scaffold
from fedmim.report.curves import save_figure
from fedmim.theory.local_paths import LocalPaths, record_paths, two_clients
from fedmim.theory.path_drawing import (
    CLIENT_COLOURS,
    CLIENT_MARKERS,
    add_label,
    draw_arrow,
    draw_global_models,
    draw_landscape,
    draw_local_steps,
    draw_starts,
    empty_figure,
)
from fedmim.theory.plotting import INK
from fedmim.theory.quadratics import QuadraticProblem, resting_point
from fedmim.theory.synthetic_runs import OnStart

STEPS, LR, ROUNDS = 5, 0.5, 8
ALPHA, BETA, AHEAD = (0.4, 0.2), (0.9, 0.1), 1.0
DRAWN: dict[str, Algorithm] = {
    "FedAvg": FedAvg(),
    "SCAFFOLD": Scaffold(),
    "FedMIM": FedMIM(ALPHA, BETA),
    "FedAvg + leap": Leap(FedAvg(), ALPHA, AHEAD),
}
NOTES = {
    "FedAvg": "clients drift apart",
    "SCAFFOLD": "control variates",
    "FedMIM": "inertia in K parts",
    "FedAvg + leap": "inertia in one leap, look-ahead 1",
}
WINDOW = ((-4.75, 3.6), (-2.1, 3.4))
LEVELS = [0.6 * radius**2 for radius in (0.1, 0.3, 0.6, 1.0, 1.5, 2.1, 2.8)]  # of f - f*
ROUND = 2  # the round of the second figure


def demonstrate_paths(on_start: OnStart) -> PathsResult:
    """Run four methods from the same start at the same learning rate."""
    problem, on_round = two_clients(), on_start(len(DRAWN) * ROUNDS)
    paths = {name: record_paths(method, problem, STEPS, LR, ROUNDS, on_round) for name, method in DRAWN.items()}
    return PathsResult(problem, paths)


@dataclass(frozen=True)
class PathsResult:
    """The paths of each method."""

    problem: QuadraticProblem
    paths: dict[str, LocalPaths]

    def limit(self, name: str) -> Tensor:
        """The point to which the method converges."""
        if name == "SCAFFOLD":
            return self.problem.optimum
        return resting_point(self.problem, LR if name == "FedAvg" else (1 - sum(ALPHA)) * LR, STEPS)

    def distance(self, point: Tensor) -> float:
        """The distance to the global optimum."""
        return float((point - self.problem.optimum).norm())

    def apart(self, name: str) -> float:
        """The distance between the two clients' models at the end of the last round."""
        first, second = self.paths[name].local[-1, :, -1]
        return float((first - second).norm())

    def findings(self) -> list[str]:
        """The findings as text."""
        return [
            f"{name}: after {ROUNDS} rounds {self.distance(run.models[-1]):.2f} from the optimum, clients "
            f"{self.apart(name):.2f} apart; it converges to a point at distance {self.distance(self.limit(name)):.2f}"
            for name, run in self.paths.items()
        ]

    def draw(self, path: Path) -> None:
        """Draw the figure."""
        figure = empty_figure(9.6, 7.8)
        panels = figure.subplots(2, 2, sharex=True, sharey=True).flat
        for axes, (name, run) in zip(panels, self.paths.items(), strict=True):
            draw_landscape(axes, self.problem, WINDOW, LEVELS)
            for local in run.local:
                draw_local_steps(axes, local, size=2.4)
            draw_global_models(axes, name, run.models)
            draw_starts(axes, run)
            look: dict[str, Any] = {
                "color": "black",
                "markerfacecolor": "none",
                "markersize": 10,
                "linestyle": "",
                "zorder": 6,
            }
            axes.plot(*self.limit(name), "D", label="limit of the method", **look)
            add_label(axes, run.models[0], "$x_0$", (-20, -4))
            axes.set_title(f"{name}: {NOTES[name]}", fontsize=12, color=INK)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=11)
        save_figure(figure, path)


def demonstrate_round(on_start: OnStart) -> RoundResult:
    """Run FedMIM and FedAvg + leap until the round that is shown."""
    shown, rounds = ("FedMIM", "FedAvg + leap"), ROUND + 1
    problem, on_round = two_clients(), on_start(len(shown) * rounds)
    paths = [record_paths(DRAWN[name], problem, STEPS, LR, rounds, on_round) for name in shown]
    return RoundResult(problem, *paths)


@dataclass(frozen=True)
class RoundResult:
    """The paths of the two methods up to the end of the round that is shown."""

    problem: QuadraticProblem
    fedmim: LocalPaths
    leap: LocalPaths

    @staticmethod
    def inertia(run: LocalPaths) -> Tensor:
        """D = sum_j alpha_j (x_{t-j} - x_{t-j-1}) in the round that is shown."""
        x = run.models
        return torch.stack([weight * (x[ROUND - j] - x[ROUND - j - 1]) for j, weight in enumerate(ALPHA)]).sum(0)

    def findings(self) -> list[str]:
        """The findings as text."""
        return [
            f"{name}: ||D|| is {self.inertia(run).norm():.2f}, and the round moves the model by "
            f"{(run.models[-1] - run.models[-2]).norm():.2f}"
            for name, run in (("FedMIM", self.fedmim), ("FedAvg + leap", self.leap))
        ]

    def draw(self, path: Path) -> None:
        """Draw the figure."""
        figure = empty_figure(11, 4.6)
        for axes, run in zip(figure.subplots(1, 2), (self.fedmim, self.leap), strict=True):
            draw_landscape(axes, self.problem, ((-1.95, 0.6), (0.05, 1.75)), LEVELS)
            draw_local_steps(axes, run.local[-1], size=5)
        self._draw_fedmim(figure.axes[0])
        self._draw_leap(figure.axes[1])
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles[3:], labels[3:], loc="outside lower center", ncols=4, frameon=False, fontsize=11)
        save_figure(figure, path)

    def _draw_fedmim(self, axes: Axes) -> None:
        """Each local step adds D / K and a gradient that is taken ahead of the iterate."""
        run, inertia = self.fedmim, self.inertia(self.fedmim)
        x, after = run.models[-2:]
        axes.set_title("FedMIM: each of K local steps adds D / K", fontsize=12, color=INK)
        draw_global_models(axes, "FedMIM", run.models)
        for points, colour, marker in zip(run.points[-1], CLIENT_COLOURS, CLIENT_MARKERS, strict=True):
            look: dict[str, Any] = {
                "color": colour,
                "markerfacecolor": "white",
                "markersize": 5,
                "linestyle": "",
                "zorder": 2,
            }
            axes.plot(*points.T, marker, label="" if marker == "s" else "look-ahead: gradients are taken here", **look)
        draw_arrow(axes, x, x + inertia, "black")
        add_label(axes, x, "$x_t$", (-22, -14))
        add_label(axes, x + inertia / 2, "$D$", (8, 8))
        add_label(axes, after, "$x_{t+1}$ = mean", (10, -14))

    def _draw_leap(self, axes: Axes) -> None:
        """Clients start at z; the server subtracts the look-ahead from their mean."""
        run, inertia = self.leap, self.inertia(self.leap)
        x, after = run.models[-2:]
        z, mean = x + (1 + AHEAD) * inertia, run.means[-1]
        axes.set_title("FedAvg + leap: clients start at z", fontsize=12, color=INK)
        draw_global_models(axes, "FedAvg + leap", run.models)
        draw_arrow(axes, x, x + inertia, "black")
        draw_arrow(axes, x + inertia, z, "black", "dashed")
        draw_arrow(axes, mean, after, "black", "dashed")
        axes.plot(*mean, "P", color="black", markersize=8, zorder=6)
        add_label(axes, x, "$x_t$", (-22, -14))
        add_label(axes, x + inertia / 2, "$D$", (8, 8))
        add_label(axes, x + 1.5 * inertia, "ahead $D$", (8, 6))
        add_label(axes, z, "$z = x_t + (1 + $ahead$)\\,D$", (8, 10))
        add_label(axes, mean, "mean", (10, -12))
        add_label(axes, after, "$x_{t+1}$ = mean $-$ ahead $D$", (-122, -46))
