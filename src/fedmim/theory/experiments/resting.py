"""Quadratics exactly: where each method rests, how fast it gets there, and up to which rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log
from pathlib import Path

import numpy as np

from fedmim.algorithms import Scaffold
from fedmim.theory.constants import largest_rate
from fedmim.theory.experiments import Tell
from fedmim.theory.figures import INK, METHODS, colour, logarithmic, panels, save
from fedmim.theory.fixed_points import bias, contraction, largest_stable_rate, scaffold_contraction
from fedmim.theory.problem import Federation
from fedmim.theory.quadratics import Quadratics
from fedmim.theory.walking import walk, walk_models

CLIENTS, STEPS = 16, 4


@dataclass(frozen=True)
class RestingExperiment:
    """Bias and speed against the rate, from the exact analysis, with runs of the simulator beside it."""

    rates: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    rounds: int = 120
    grid: int = 120

    @property
    def rounds_in_all(self) -> int:
        """How many rounds of the simulator it takes."""
        return self.rounds * len(self.rates) * (len(METHODS) + 1)

    def run(self, tell: Tell) -> RestingResult:
        """Do it."""
        drawn = Quadratics.draw(CLIENTS, eigenvalues=(0.1, 1.0))
        problem = replace(drawn, start=drawn.optimum + 1e-3)
        federation = Federation(CLIENTS, CLIENTS, STEPS)
        grid = np.logspace(-3, 1.45, self.grid)
        biases, speeds, stable, seen = {}, {}, {}, {}
        for name, inertia in METHODS.items():
            stable[name] = largest_stable_rate(problem, inertia, STEPS)
            within = [float(lr) for lr in grid if lr < stable[name]]
            biases[name] = [(lr, bias(problem, inertia, lr, STEPS)) for lr in within]
            speeds[name] = [(lr, _rounds(contraction(problem, inertia, lr, STEPS))) for lr in within]
            ends = [walk(problem, federation, inertia, lr, self.rounds, tell=tell).models[-1] for lr in self.rates]
            seen[name] = [float((end - problem.optimum).norm()) for end in ends]
        factors = [(float(lr), scaffold_contraction(problem, float(lr), STEPS)) for lr in grid]
        speeds["SCAFFOLD"] = [(lr, _rounds(factor)) for lr, factor in factors if factor < 1]
        ends = [walk_models(Scaffold(), problem, federation, lr, self.rounds, tell=tell)[0][-1] for lr in self.rates]
        seen["SCAFFOLD"] = [float((end - problem.optimum).norm()) for end in ends]
        caps = {name: largest_rate(problem.problem(), federation, inertia) for name, inertia in METHODS.items()}
        return RestingResult(self.rates, biases, speeds, stable, seen, caps)


def _rounds(factor: float) -> float:
    """Rounds for a fall by e."""
    return -1 / log(factor) if 0 < factor < 1 else inf


Curve = list[tuple[float, float]]


@dataclass(frozen=True)
class RestingResult:
    """What was found, by method."""

    rates: tuple[float, ...]
    biases: dict[str, Curve]  # ||x - x*|| at rest, against the rate
    speeds: dict[str, Curve]  # rounds for a fall by e, against the rate
    stable: dict[str, float]  # the rate up to which rounds contract
    seen: dict[str, list[float]]  # ||x_T - x*|| of runs
    caps: dict[str, float]  # what the theorem admits

    def findings(self) -> list[str]:
        """In words, with the numbers."""
        lines = []
        for name, cap in self.caps.items():
            fastest = min(rounds for _, rounds in self.speeds[name])
            lines.append(
                f"{name}: stable up to {self.stable[name]:.3g}, {self.stable[name] / cap:.0f} times the {cap:.2g} that "
                f"the theorem admits; at its best rate {fastest:.2g} rounds for a fall by e"
            )
        small = self.biases["FedMIM"][0][1] / self.biases["FedAvg"][0][1]
        lines.append(f"FedMIM's bias is {small:.3f} of FedAvg's at small rates (A = 0.1)")
        lines.append(
            f"SCAFFOLD ends within {self.seen['SCAFFOLD'][1]:.1e} of the optimum at the rate {self.rates[1]:g}"
        )
        return lines

    def draw(self, path: Path) -> None:
        """As a figure."""
        figure, (left, right) = panels("Quadratics, exactly: inertia has A times the bias at the same rate")
        for name, curve in self.biases.items():
            left.plot(*zip(*curve, strict=True), color=colour(name), label=name, linestyle=_dash(name))
            reached = [(lr, end) for lr, end in zip(self.rates, self.seen[name], strict=True) if lr < self.stable[name]]
            left.plot(*zip(*reached, strict=True), "o", color=colour(name), markersize=5)
        left.plot([], [], "o", color=INK, markersize=5, label="runs of the simulator")
        logarithmic(left, "local rate eta", "||x - x*|| at rest")
        left.legend(frameon=False, fontsize=8, title="SCAFFOLD: 0", title_fontsize=8)
        left.set_title(f"{CLIENTS} clients, all of them a round, K = {STEPS}", fontsize=9)
        for name, curve in self.speeds.items():
            right.plot(*zip(*curve, strict=True), color=colour(name), label=name, linestyle=_dash(name))
        logarithmic(right, "local rate eta", "rounds for a fall by e")
        for panel in (left, right):
            panel.axvline(self.caps["FedMIM"], color=INK, linewidth=0.8, linestyle=":")
        right.annotate(
            "the theorem's cap",
            (self.caps["FedMIM"], 0.9),
            xytext=(4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )
        right.legend(frameon=False, fontsize=8)
        right.set_title("curves end where the method becomes unstable", fontsize=9)
        save(figure, path)


def _dash(name: str) -> str:
    """FedCM's and FedMIM's biases are the same: both must show."""
    return "--" if name == "FedMIM" else "-"
