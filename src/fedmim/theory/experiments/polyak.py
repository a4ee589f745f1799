"""Theorem 2: under PL the error falls exponentially to a floor, and the floor is proportional to eta / S."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedmim.theory.bounds import Theorem2
from fedmim.theory.constants import largest_rate
from fedmim.theory.experiments import Tell
from fedmim.theory.figures import INK, METHODS, label, logarithmic, panels, save, slope
from fedmim.theory.lemmas import mean_gradients
from fedmim.theory.problem import Federation
from fedmim.theory.quadratics import Quadratics
from fedmim.theory.walking import walk

CLIENTS, STEPS = 64, 4
TONES = ("#f0a868", "#d55e00", "#7a3300")


@dataclass(frozen=True)
class Fall:
    """One setting: its rate, S, ||grad f(u_t)||^2 of every round (mean over seeds), and the bound where it holds."""

    lr: float
    active: int
    squares: np.ndarray
    times_cap: float
    bound: list[tuple[int, float]]

    @property
    def floor(self) -> float:
        """The mean over the last third."""
        return float(self.squares[-len(self.squares) // 3 :].mean())


@dataclass(frozen=True)
class PolyakExperiment:
    """FedMIM on a quadratic with noise: three rates, then other numbers of clients a round."""

    rounds: int = 700
    seeds: int = 1
    times_cap: tuple[float, ...] = (0.9, 3.0, 10.0)
    actives: tuple[int, ...] = (2, 16)  # besides 4, at the middle rate

    @property
    def rounds_in_all(self) -> int:
        """How many rounds of the simulator it takes."""
        return self.rounds * self.seeds * (len(self.times_cap) + len(self.actives))

    def run(self, tell: Tell) -> PolyakResult:
        """Do it."""
        drawn = Quadratics.draw(CLIENTS, sigma=1.0, spread=0.3, eigenvalues=(0.6, 1.0))
        problem = replace(drawn, start=drawn.optimum + 1.0)
        middle = self.times_cap[len(self.times_cap) // 2]
        by_rate = [self._path(problem, 4, times, tell) for times in self.times_cap]
        by_active = [self._path(problem, active, middle, tell) for active in self.actives]
        return PolyakResult(by_rate, by_active, problem.mu)

    def _path(self, problem: Quadratics, active: int, times_cap: float, tell: Tell) -> Fall:
        federation, inertia = Federation(CLIENTS, active, STEPS), METHODS["FedMIM"]
        lr = times_cap * largest_rate(problem.problem(), federation, inertia)
        runs = [walk(problem, federation, inertia, lr, self.rounds, seed, tell=tell) for seed in range(self.seeds)]
        squares = sum(problem.gradient(run.ahead[:-1]).square().sum(1).numpy() for run in runs) / len(runs)
        bounds = []
        if times_cap < 1:
            largest = max(float(mean_gradients(run.ahead, lr, STEPS).square().sum(1).max()) for run in runs)
            bound = Theorem2(problem.problem(c=largest), federation, inertia, lr)
            bounds = [(t, bound.at(t)) for t in range(bound.least_rounds, self.rounds + 1)]
        return Fall(lr, active, np.asarray(squares), times_cap, bounds)


@dataclass(frozen=True)
class PolyakResult:
    """What was found."""

    by_rate: list[Fall]
    by_active: list[Fall]
    mu: float

    def decay(self, path: Fall) -> float:
        """The exponent of the fall in units of eta K, fitted until the error is ten times its floor."""
        reached = np.flatnonzero(path.squares < 10 * path.floor)
        until = max(5, int(reached[0]) if len(reached) else len(path.squares))
        fitted = np.polyfit(np.arange(until), np.log(path.squares[:until]), 1)[0]
        return float(-fitted / (path.lr * STEPS))

    def floor_exponent(self) -> float:
        """Of the floor against eta / S; the theorem says 1 to first order."""
        paths = self.by_rate + self.by_active
        return slope([path.lr / path.active for path in paths], [path.floor for path in paths])[0]

    def findings(self) -> list[str]:
        """In words, with the numbers."""
        decays = ", ".join(f"{self.decay(path):.2f}" for path in self.by_rate)
        return [
            f"the error falls as exp(-c eta K t) with c = {decays} at the three rates; mu = {self.mu:.2f} here, so "
            "gradient flow has 2 mu at least, and the theorem promises mu lambda with lambda below 1/2",
            f"floor against eta / S: slope {self.floor_exponent():.2f} (the theorem: 1)",
        ]

    def draw(self, path: Path) -> None:
        """As a figure."""
        figure, (left, right) = panels("Theorem 2: under PL an exponential fall to a floor (FedMIM, quadratic, noise)")
        for each, tone in zip(self.by_rate, TONES, strict=False):
            name = f"{each.times_cap:g} times the largest admissible rate"
            left.plot(np.maximum(each.squares, 1e-12), color=tone, label=name, linewidth=1.2)
            left.axhline(each.floor, color=tone, linewidth=0.8, linestyle=":")
            if each.bound:
                left.plot(*zip(*each.bound, strict=True), "--", color=tone, label="its bound (Theorem 2)")
        left.set_yscale("log")
        label(left, "round t", "||grad f(u_t)||²")
        left.legend(frameon=False, fontsize=8)
        left.set_title("S = 4 of 64; dotted: the floor, mean of the last third", fontsize=9)
        paths = self.by_rate + self.by_active
        for each in paths:
            at = each.lr / each.active
            right.plot(at, each.floor, "o", color=TONES[1], markersize=7)
            right.annotate(
                f"S = {each.active}", (at, each.floor), xytext=(7, -4), textcoords="offset points", fontsize=8
            )
        x = [each.lr / each.active for each in paths]
        exponent, factor = slope(x, [each.floor for each in paths])
        ends = [min(x), max(x)]
        right.plot(
            ends, [factor * end**exponent for end in ends], color=INK, linewidth=1, label=f"slope {exponent:.2f}"
        )
        logarithmic(right, "eta / S", "floor of ||grad f(u_t)||²")
        right.legend(frameon=False, fontsize=8)
        save(figure, path)
