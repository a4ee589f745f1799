"""Remark 1: at its rate the error falls as 1 / sqrt(S K T), and local steps pay up to sigma^2 / (4 G^2)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from fedmim.theory.constants import largest_rate
from fedmim.theory.experiments import Tell
from fedmim.theory.figures import HALF, INK, logarithmic, panels, save, slope
from fedmim.theory.problem import Federation, Problem
from fedmim.theory.rates import remark_1_rate
from fedmim.theory.valleys import Valleys
from fedmim.theory.walking import walk

CLIENTS, DIMENSION, STEPS = 256, 16, 2
SHADES = ("#fdbe85", "#fd9a52", "#f0731f", "#d55e00", "#a84600", "#7a3300", "#4d2000")  # S from 1 to 64


@dataclass(frozen=True)
class Seen:
    """A run: its S, K, T, the mean over rounds of ||grad f(u_t)||^2, and whether the theorem admits its rate."""

    active: int
    steps: int
    rounds: int
    error: float
    admitted: bool

    @property
    def gradients(self) -> int:
        """S K T."""
        return self.active * self.steps * self.rounds


@dataclass(frozen=True)
class SpeedupExperiment:
    """FedMIM, A = 1/2, on a non-convex problem where noise dominates; then as many rounds with more local steps."""

    actives: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    rounds: tuple[int, ...] = (512,)  # T at every S
    more_rounds: tuple[int, ...] = (1024,)  # T at the first, the middle and the last S
    steps: tuple[int, ...] = (1, 2, 4, 8, 16)
    steps_rounds: int = 256

    def _pairs(self) -> list[tuple[int, int]]:
        some = {self.actives[0], self.actives[len(self.actives) // 2], self.actives[-1]}
        return [(s, t) for s in self.actives for t in (*self.rounds, *(self.more_rounds if s in some else ()))]

    @property
    def rounds_in_all(self) -> int:
        """How many rounds of the simulator it takes."""
        return sum(rounds for _, rounds in self._pairs()) + 2 * len(self.steps) * self.steps_rounds

    def run(self, tell: Tell) -> SpeedupResult:
        """Do it."""
        alike = Valleys.draw(CLIENTS, DIMENSION, spread=0.0, sigma=2.0)
        unlike = Valleys.draw(CLIENTS, DIMENSION, spread=0.5, sigma=2.0)
        speedup = [_seen(alike, Federation(CLIENTS, s, STEPS), t, tell) for s, t in self._pairs()]
        by_steps = {
            name: [_seen(problem, Federation(CLIENTS, 8, k), self.steps_rounds, tell) for k in self.steps]
            for name, problem in (("G = 0", alike), (f"G = {unlike.problem().G:.2g}", unlike))
        }
        return SpeedupResult(speedup, by_steps, unlike.problem())


def _seen(valleys: Valleys, federation: Federation, rounds: int, tell: Tell) -> Seen:
    problem, inertia = valleys.problem(), HALF
    lr = remark_1_rate(problem, federation, rounds)
    run = walk(valleys, federation, inertia, lr, rounds, tell=tell)
    error = float(valleys.gradient(run.ahead[:-1]).square().sum(1).mean())
    admitted = lr < largest_rate(problem, federation, inertia)
    return Seen(federation.active, federation.steps, rounds, error, admitted)


@dataclass(frozen=True)
class SpeedupResult:
    """What was found."""

    speedup: list[Seen]
    by_steps: dict[str, list[Seen]]
    unlike: Problem

    def exponent(self) -> float:
        """Of the error against S K T; the theorem says -1/2."""
        return slope([seen.gradients for seen in self.speedup], [seen.error for seen in self.speedup])[0]

    def exponent_in_s(self) -> float:
        """Of the error against S alone, at the T that every S has."""
        most = max(seen.active for seen in self.speedup)
        common = set.intersection(*({s.rounds for s in self.speedup if s.active == a} for a in (1, most)))
        rounds = sorted({seen.rounds for seen in self.speedup} & common, key=self._count)[-1]
        same = [seen for seen in self.speedup if seen.rounds == rounds]
        return slope([seen.active for seen in same], [seen.error for seen in same])[0]

    def _count(self, rounds: int) -> int:
        return sum(seen.rounds == rounds for seen in self.speedup)

    def knee(self) -> float:
        """sigma^2 / (4 G^2) of the heterogeneous problem."""
        return self.unlike.sigma**2 / (4 * self.unlike.G**2)

    def findings(self) -> list[str]:
        """In words, with the numbers."""
        lines = [
            f"error against S K T: slope {self.exponent():.2f} (the theorem: -0.5), S from {self.speedup[0].active} to "
            f"{self.speedup[-1].active}; against S alone {self.exponent_in_s():.2f}"
        ]
        for name, runs in self.by_steps.items():
            gain = runs[0].error / runs[-1].error
            lines.append(f"{name}: K = {runs[-1].steps} instead of {runs[0].steps} lowers the error {gain:.1f} times")
        return [*lines, f"the knee sigma^2 / (4 G^2) of the latter is at K = {self.knee():.1f}"]

    def draw(self, path: Path) -> None:
        """As a figure."""
        figure, (left, right) = panels("Remark 1: linear speed-up in the clients of a round, and what local steps buy")
        actives = sorted({seen.active for seen in self.speedup})
        for place, active in enumerate(actives):
            runs = [seen for seen in self.speedup if seen.active == active]
            shade = SHADES[place * (len(SHADES) - 1) // max(1, len(actives) - 1)]
            for seen in runs:
                face = shade if seen.admitted else "white"
                name = f"S = {active}" if seen is runs[0] else None
                left.plot(seen.gradients, seen.error, "o", color=shade, markerfacecolor=face, markersize=7, label=name)
        x = [seen.gradients for seen in self.speedup]
        exponent, factor = slope(x, [seen.error for seen in self.speedup])
        ends = [min(x), max(x)]
        left.plot(ends, [factor * end**exponent for end in ends], color=INK, linewidth=1, label=f"slope {exponent:.2f}")
        logarithmic(left, "S K T", "mean over rounds of ||grad f(u_t)||²")
        left.legend(frameon=False, fontsize=8, ncols=2)
        left.set_title(f"FedMIM, A = 1/2, non-convex, K = {STEPS}; hollow: above the sufficient rate", fontsize=9)
        for (name, runs), style in zip(self.by_steps.items(), ("o-", "s-"), strict=True):
            tone = SHADES[1] if style == "o-" else SHADES[4]
            steps = [seen.steps for seen in runs]
            right.plot(steps, [seen.error for seen in runs], style, color=tone, label=f"{name}, measured")
            g2 = 0.0 if style == "o-" else self.unlike.G**2
            lead = [sqrt(self.unlike.sigma**2 / k + 4 * g2) for k in steps]
            scaled = [runs[0].error * value / lead[0] for value in lead]
            right.plot(steps, scaled, "--", color=tone, linewidth=1, label=f"{name}, ~ sqrt(σ²/K + 4 G²)")
        right.axvline(self.knee(), color=INK, linewidth=0.8, linestyle=":")
        right.annotate("σ²/(4 G²)", (self.knee(), 0.02), xycoords=("data", "axes fraction"), fontsize=8, color=INK)
        logarithmic(right, "local steps K", "mean over rounds of ||grad f(u_t)||²")
        right.legend(frameon=False, fontsize=8)
        right.set_title(f"S = 8, T = {next(iter(self.by_steps.values()))[0].rounds}", fontsize=9)
        save(figure, path)
