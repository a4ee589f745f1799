"""Theorem 2: under PL the error falls exponentially to a floor, and the floor is proportional to eta / S."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedmim.theory.bounds import Theorem2
from fedmim.theory.constants import largest_rate
from fedmim.theory.experiments import Tell
from fedmim.theory.figures import HALF, INK, METHODS, label, logarithmic, panels, save, slope
from fedmim.theory.lemmas import mean_gradients
from fedmim.theory.problem import Federation, Inertia
from fedmim.theory.quadratics import Quadratics
from fedmim.theory.walking import walk

CLIENTS, ACTIVE, STEPS = 64, 4, 4
TONES = ("#f0a868", "#d55e00", "#7a3300")


@dataclass(frozen=True)
class Fall:
    """One run: ||grad f||^2 of every round at u_t and at x_t; where the theorem admits the rate, what it promises."""

    lr: float
    times_cap: float
    active: int
    at_u: np.ndarray
    at_x: np.ndarray
    promised: tuple[int, float] | None  # from which round on Theorem 2 speaks, and its floor Psi_2

    @property
    def floor(self) -> float:
        """At u_t, the mean over the last third."""
        return float(self.at_u[-len(self.at_u) // 3 :].mean())

    @property
    def floor_of_model(self) -> float:
        """At x_t, the mean over the last third."""
        return float(self.at_x[-len(self.at_x) // 3 :].mean())

    @property
    def decay(self) -> float:
        """The exponent of the fall in units of eta K, fitted until the error is ten times its floor."""
        reached = np.flatnonzero(self.at_u < 10 * self.floor)
        until = max(5, int(reached[0]) if len(reached) else len(self.at_u))
        fitted = np.polyfit(np.arange(until), np.log(self.at_u[:until]), 1)[0]
        return float(-fitted / (self.lr * STEPS))


@dataclass(frozen=True)
class PolyakExperiment:
    """FedMIM on a quadratic with noise: three rates, other numbers of clients a round, and stronger inertia."""

    rounds: int = 600
    times_cap: tuple[float, ...] = (0.8, 3.0, 10.0)
    actives: tuple[int, ...] = (2, 16)  # besides the usual one, at the middle rate

    @property
    def rounds_in_all(self) -> int:
        """How many rounds of the simulator it takes."""
        return self.rounds * (2 * len(self.times_cap) + len(self.actives))

    def run(self, tell: Tell) -> PolyakResult:
        """Do it."""
        drawn = Quadratics.draw(CLIENTS, 16, sigma=1.0, spread=0.3, eigenvalues=(0.6, 1.0))
        problem = replace(drawn, start=drawn.optimum + 0.5)
        middle = self.times_cap[len(self.times_cap) // 2]
        return PolyakResult(
            [self._fall(problem, HALF, ACTIVE, times, tell) for times in self.times_cap],
            [self._fall(problem, HALF, active, middle, tell) for active in self.actives],
            [self._fall(problem, METHODS["FedMIM"], ACTIVE, times, tell) for times in self.times_cap],
            problem.mu,
        )

    def _fall(self, problem: Quadratics, inertia: Inertia, active: int, times_cap: float, tell: Tell) -> Fall:
        federation = Federation(CLIENTS, active, STEPS)
        lr = times_cap * largest_rate(problem.problem(), federation, inertia)
        run = walk(problem, federation, inertia, lr, self.rounds, tell=tell)
        at_u, at_x = (problem.gradient(path[:-1]).square().sum(1).numpy() for path in (run.ahead, run.models))
        promised = None
        if times_cap < 1:
            largest = float(mean_gradients(run.ahead, lr, STEPS).square().sum(1).max())
            bound = Theorem2(problem.problem(c=largest), federation, inertia, lr)
            promised = bound.least_rounds, bound.floor
        return Fall(lr, times_cap, active, at_u, at_x, promised)


@dataclass(frozen=True)
class PolyakResult:
    """What was found."""

    by_rate: list[Fall]  # A = 1/2
    by_active: list[Fall]
    strong: list[Fall]  # A = 0.1, at the same multiples of the cap
    mu: float

    def floor_exponent(self) -> float:
        """Of the floor against eta / S; the theorem says 1 to first order."""
        falls = self.by_rate + self.by_active
        return slope([fall.lr / fall.active for fall in falls], [fall.floor for fall in falls])[0]

    def findings(self) -> list[str]:
        """In words, with the numbers."""
        decays = ", ".join(f"{fall.decay:.2f}" for fall in self.by_rate)
        extra = ", ".join(f"{s.floor / w.floor:.2f}" for s, w in zip(self.strong, self.by_rate, strict=True))
        model = ", ".join(
            f"{s.floor_of_model / w.floor_of_model:.2f}" for s, w in zip(self.strong, self.by_rate, strict=True)
        )
        promises = [
            f"at {fall.times_cap:g} times the largest rate the floor is {fall.floor:.2g}; Theorem 2 speaks from round "
            f"{fall.promised[0]} on, and its floor Psi_2 is {fall.promised[1]:.2g}"
            for fall in self.by_rate
            if fall.promised
        ]
        return [
            f"the error falls as exp(-c eta K t) with c = {decays} at the rates; mu = {self.mu:.2f} here, so gradient "
            "flow has 2 mu at least, and the theorem promises mu lambda with lambda below 1/2",
            f"floor against eta / S: slope {self.floor_exponent():.2f} (the theorem: 1 to first order)",
            f"A = 0.1 against A = 0.5 at the same multiples of the cap: floor {extra} times at u_t, {model} at x_t",
            *promises,
        ]

    def draw(self, path: Path) -> None:
        """As a figure."""
        figure, (left, right) = panels("Theorem 2: under PL an exponential fall to a floor (FedMIM, quadratic, noise)")
        for fall, tone in zip(self.by_rate, TONES, strict=False):
            left.plot(
                fall.at_u, color=tone, label=f"{fall.times_cap:g} times the largest admissible rate", linewidth=1.2
            )
            left.axhline(fall.floor, color=tone, linewidth=0.8, linestyle=":")
        left.set_yscale("log")
        label(left, "round t", "||grad f(u_t)||²")
        left.legend(frameon=False, fontsize=8)
        left.set_title(f"A = 1/2, S = {ACTIVE} of {CLIENTS}; dotted: the floor, mean of the last third", fontsize=9)
        falls = self.by_rate + self.by_active
        for fall in falls:
            at = fall.lr / fall.active
            right.plot(at, fall.floor, "o", color=TONES[1], markersize=7)
            right.annotate(
                f"S = {fall.active}", (at, fall.floor), xytext=(7, -9), textcoords="offset points", fontsize=8
            )
        x = [fall.lr / fall.active for fall in falls]
        exponent, factor = slope(x, [fall.floor for fall in falls])
        ends = [min(x), max(x)]
        name = f"A = 1/2: slope {exponent:.2f}"
        right.plot(ends, [factor * end**exponent for end in ends], color=TONES[1], linewidth=1, label=name)
        places = [fall.lr / fall.active for fall in self.strong]
        right.plot(places, [fall.floor for fall in self.strong], "D", color=INK, label="A = 0.1, at u_t")
        floors = [fall.floor_of_model for fall in self.strong]
        right.plot(places, floors, "D", color=INK, markerfacecolor="none", label="A = 0.1, at x_t")
        logarithmic(right, "eta / S", "floor of ||grad f(u_t)||²")
        right.legend(frameon=False, fontsize=8)
        save(figure, path)
