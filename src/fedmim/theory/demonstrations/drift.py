"""The cost of heterogeneous clients on quadratics: client sampling and drift.

The floor is proportional to G^2, and inertia multiplies the drift part by A^2. The exact analysis gives the fixed point
of each method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from fedmim.algorithms import Algorithm, FedMIM, Scaffold
from fedmim.theory import plotting
from fedmim.theory.constants import SHOWN_METHODS, FederationShape, Inertia, largest_lr
from fedmim.theory.plotting import INK, method_colour
from fedmim.theory.quadratics import QuadraticProblem, bias, contraction, largest_stable_lr, scaffold_contraction
from fedmim.theory.synthetic_runs import OnRound, OnStart, run_fedmim, run_method

_CLIENTS, _SOME, _STEPS = 16, 4, 4
COMMON_LR = 0.1


def demonstrate_heterogeneity(
    on_start: OnStart,
    spreads: Sequence[float] = (0.5, 1.0, 2.0),
    rounds_with_some: int = 240,
    rounds_with_all: int = 120,
) -> HeterogeneityResult:
    """Run FedAvg, FedCM and FedMIM without noise on quadratics of increasing G, with some and with all clients."""
    on_round = on_start(len(SHOWN_METHODS) * len(spreads) * (rounds_with_some + rounds_with_all))
    drawn = QuadraticProblem.draw(_CLIENTS)
    base = replace(drawn, start=drawn.optimum + 1e-4)
    problems = [base.with_spread(spread) for spread in spreads]
    floors = [
        {
            name: [_floor(problem, inertia, active, rounds, on_round) for problem in problems]
            for name, inertia in SHOWN_METHODS.items()
        }
        for active, rounds in ((_SOME, rounds_with_some), (_CLIENTS, rounds_with_all))
    ]
    return HeterogeneityResult([problem.constants().G for problem in problems], *floors)


class GradientFloor(NamedTuple):
    """The floor of the squared gradient: at u_t, which the theorems bound, and at the model x_t."""

    u: float
    x: float


def _floor(problem: QuadraticProblem, inertia: Inertia, active: int, rounds: int, on_round: OnRound) -> GradientFloor:
    """The floor as the mean over the second half of a run."""
    run = run_fedmim(problem, FederationShape(_CLIENTS, active, _STEPS), inertia, COMMON_LR, rounds, on_round=on_round)
    paths = (run.auxiliary, run.models)
    return GradientFloor(*(float(problem.squared_gradient(path[-rounds // 2 :]).mean()) for path in paths))


@dataclass(frozen=True)
class HeterogeneityResult:
    """The floor for each method and each G."""

    g: list[float]
    some: dict[str, list[GradientFloor]]  # with some of the clients per round
    everyone: dict[str, list[GradientFloor]]

    def fit(self, floors: list[GradientFloor]) -> tuple[float, float]:
        """Exponent and factor of the floor at u_t against G; the theorem's exponent is 2."""
        return plotting.fit_power_law(self.g, [floor.u for floor in floors])

    def exponents(self) -> dict[str, float]:
        """The exponent for each method, with some clients and with all."""
        parts = (("some", self.some), ("all", self.everyone))
        return {f"{name}, {who}": self.fit(floors[name])[0] for who, floors in parts for name in floors}

    def drift_ratio(self, name: str) -> float:
        """The floor with all clients, where only drift remains, relative to FedAvg's."""
        return self.everyone[name][-1].u / self.everyone["FedAvg"][-1].u

    def findings(self) -> list[str]:
        """The findings as text."""
        found = ", ".join(f"{value:.2f}" for value in self.exponents().values())
        plain, heavy = self.some["FedAvg"][-1], self.some["FedMIM"][-1]
        return [
            f"floor against G: slopes {found} (the theorem: 2)",
            f"all clients: FedMIM's floor is {self.drift_ratio('FedMIM'):.4f} of FedAvg's (A^2 = 0.01)",
            f"{_SOME} of {_CLIENTS} clients: FedMIM's floor is {heavy.u / plain.u:.2f} of FedAvg's at u_t and "
            f"{heavy.x / plain.x:.2f} at x_t: inertia reduces drift, not the variance of client sampling",
        ]

    def draw(self, path: Path) -> None:
        """Draw the figure."""
        title = "The floor is proportional to G² (quadratics, no noise, shared learning rate)"
        with plotting.two_panels(path, title) as (left, right):
            self._draw_floors(left, self.some, f"{_SOME} of {_CLIENTS} clients per round: variance of client sampling")
            self._draw_floors(right, self.everyone, "all clients: only drift")

    def _draw_floors(self, axes: Axes, floors: dict[str, list[GradientFloor]], title: str) -> None:
        for name, values in floors.items():
            fit, colour = self.fit(values), method_colour(name)
            axes.plot(self.g, [floor.u for floor in values], "o", color=colour, label=f"{name}, slope {fit[0]:.2f}")
            plotting.plot_power_law(axes, self.g, fit, colour)
            if name != "FedAvg":
                axes.plot(self.g, [floor.x for floor in values], "D", color=colour, markerfacecolor="none")
        axes.plot([], [], "D", color="black", markerfacecolor="none", label="at x_t, if different from u_t")
        plotting.finish_panel(axes, "heterogeneity G", "floor of ||grad f(u_t)||²", title)


def demonstrate_quadratics(
    on_start: OnStart, lrs: Sequence[float] = (0.03, 0.1, 0.3, 1.0), rounds: int = 120, grid: int = 120
) -> QuadraticsResult:
    """Bias and speed on a grid of learning rates from the exact analysis, and simulated runs at `lrs`."""
    on_round = on_start(rounds * len(lrs) * (len(SHOWN_METHODS) + 1))
    drawn = QuadraticProblem.draw(_CLIENTS, eigenvalues=(0.1, 1.0))
    problem = replace(drawn, start=drawn.optimum + 1e-3)
    federation = FederationShape(_CLIENTS, _CLIENTS, _STEPS)
    grid_lrs = [float(lr) for lr in np.logspace(-3, 1.45, grid)]
    biases, factors, stable, seen, caps = {}, {}, {}, {}, {}

    def distances(method: Algorithm) -> list[float]:
        """||x_T - x*|| of a run at each learning rate."""
        runs = (run_method(method, problem, federation, lr, rounds, on_round=on_round) for lr in lrs)
        return [float((models[-1] - problem.optimum).norm()) for models, _ in runs]

    for name, inertia in SHOWN_METHODS.items():
        caps[name] = largest_lr(problem.constants(), federation, inertia)
        stable[name] = largest_stable_lr(problem, inertia, _STEPS)
        within = [lr for lr in grid_lrs if lr < stable[name]]
        biases[name] = [(lr, bias(problem, inertia, lr, _STEPS)) for lr in within]
        factors[name] = [(lr, contraction(problem, inertia, lr, _STEPS)) for lr in within]
        seen[name] = distances(FedMIM(inertia.alpha, inertia.beta))
    factors["SCAFFOLD"] = [(lr, scaffold_contraction(problem, lr, _STEPS)) for lr in grid_lrs]
    seen["SCAFFOLD"] = distances(Scaffold())
    speeds = {
        name: [(lr, -1 / log(factor)) for lr, factor in curve if 0 < factor < 1] for name, curve in factors.items()
    }
    return QuadraticsResult(lrs, biases, speeds, stable, seen, caps)


Curve = list[tuple[float, float]]


@dataclass(frozen=True)
class QuadraticsResult:
    """Results by method."""

    lrs: Sequence[float]
    biases: dict[str, Curve]  # ||x - x*|| at the fixed point, by learning rate
    speeds: dict[str, Curve]  # rounds to shrink the distance by a factor e, by learning rate
    stable: dict[str, float]  # largest learning rate at which rounds contract
    seen: dict[str, list[float]]  # ||x_T - x*|| of runs
    caps: dict[str, float]  # largest learning rate that the theorem allows

    def findings(self) -> list[str]:
        """The findings as text."""
        lines = []
        for name, cap in self.caps.items():
            fastest = min(rounds for _, rounds in self.speeds[name])
            lines.append(
                f"{name}: stable up to {self.stable[name]:.3g}, {self.stable[name] / cap:.0f} times the {cap:.2g} that "
                f"the theorem allows; {fastest:.2g} rounds per factor e at the best learning rate"
            )
        small = self.biases["FedMIM"][0][1] / self.biases["FedAvg"][0][1]
        lines.append(f"FedMIM's bias is {small:.3f} of FedAvg's at small learning rates (A = 0.1)")
        end = self.seen["SCAFFOLD"][1]
        lines.append(f"SCAFFOLD ends within {end:.1e} of the optimum at learning rate {self.lrs[1]:g}")
        return lines

    def draw(self, path: Path) -> None:
        """Draw the figure."""
        title = "Exact analysis of quadratics: inertia has A times the bias at the same learning rate"
        with plotting.two_panels(path, title) as (left, right):
            self._draw_biases(left)
            self._draw_speeds(right)
            for axes in (left, right):
                axes.axvline(self.caps["FedMIM"], color=INK, linewidth=0.8, linestyle=":")

    def _draw_biases(self, axes: Axes) -> None:
        for name, curve in self.biases.items():
            _draw_curve(axes, name, curve)
            reached = [(lr, end) for lr, end in zip(self.lrs, self.seen[name], strict=True) if lr < self.stable[name]]
            axes.plot(*zip(*reached, strict=True), "o", color=method_colour(name), markersize=5)
        axes.plot([], [], "o", color=INK, markersize=5, label="simulated runs")
        title = f"{_CLIENTS} clients, all in every round, K = {_STEPS}"
        legend = {"title": "SCAFFOLD: 0", "title_fontsize": 8}
        plotting.finish_panel(axes, "local learning rate eta", "||x - x*|| at the fixed point", title, legend=legend)

    def _draw_speeds(self, axes: Axes) -> None:
        for name, curve in self.speeds.items():
            _draw_curve(axes, name, curve)
        title = "curves end where the method becomes unstable"
        plotting.finish_panel(axes, "local learning rate eta", "rounds per factor e", title)
        axes.annotate(
            "the theorem's cap",
            (self.caps["FedMIM"], 0.9),
            xytext=(4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )


def _draw_curve(axes: Axes, name: str, curve: Curve) -> None:
    """A method's line. FedCM and FedMIM have the same bias, so FedMIM's line is dashed to show both."""
    dash = "--" if name == "FedMIM" else "-"
    axes.plot(*zip(*curve, strict=True), color=method_colour(name), label=name, linestyle=dash)
