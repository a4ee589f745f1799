"""Theorem 1 and its lemmas on random cases, and the linear speed-up of Remark 1.

At Remark 1's learning rate the error is proportional to 1 / sqrt(S K T), and local steps help up to sigma^2 / (4 G^2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes

from fedmim.theory import plotting
from fedmim.theory.bounds import Theorem1, remark_1_lr
from fedmim.theory.constants import HALF_INERTIA, SHOWN_METHODS, FederationShape, Inertia, ProblemConstants, largest_lr
from fedmim.theory.lemma_checks import LEMMA_5, lemma_ratios, random_case, theorem_ratios
from fedmim.theory.plotting import INK, method_colour
from fedmim.theory.synthetic import NonConvexProblem
from fedmim.theory.synthetic_runs import OnRound, OnStart, SyntheticRun, run_fedmim

ROUNDING = 1e-12  # smaller ratios are rounding errors, such as the drift of a client with one step
_CLIENTS, _DIMENSION, _STEPS = 256, 16, 2  # for the speed-up
CLIENT_SHADES = ("#fdbe85", "#fd9a52", "#f0731f", "#d55e00", "#a84600", "#7a3300", "#4d2000")  # S from 1 to 64


def demonstrate_bound(on_start: OnStart, cases: int = 24, rounds: int = 20, curve_rounds: int = 600) -> BoundResult:
    """Compare runs of three methods with their bounds, and measure the lemmas' ratios on random cases.

    Each random case is run for `rounds` rounds twice: at a learning rate for the lemmas and at one for the theorem.
    """
    on_round = on_start(2 * cases * rounds + len(SHOWN_METHODS) * curve_rounds)
    curves = {name: _curve(inertia, curve_rounds, on_round) for name, inertia in SHOWN_METHODS.items()}
    found = [_ratios(seed, rounds, on_round) for seed in range(cases)]
    return BoundResult(curves, {name: [ratios[name] for ratios in found] for name in found[0]})


def _curve(inertia: Inertia, rounds: int, on_round: OnRound) -> tuple[np.ndarray, np.ndarray]:
    """min over t < T of ||grad f(u_t)||^2, and the bound, for T = 1, 2, ..."""
    problem, federation = NonConvexProblem.draw(clients=32, sigma=0.5, spread=0.5), FederationShape(32, 8, 4)
    lr = largest_lr(problem.constants(), federation, inertia) / 2
    run = run_fedmim(problem, federation, inertia, lr, rounds, on_round=on_round)
    bound = Theorem1(problem.constants(c=run.gradient_bound), federation, inertia, lr)
    return torch.cummin(run.at_u, 0).values.numpy(), np.array([bound.at(t) for t in range(1, rounds + 1)])


def _ratios(seed: int, rounds: int, on_round: OnRound) -> dict[str, float]:
    """The ratios of all lemmas and of the theorem on a random case."""
    case = random_case(seed)
    parts = case.problem, case.federation, case.inertia
    run = run_fedmim(*parts, case.lemma_lr, rounds, seed, record=True, on_round=on_round)
    found = lemma_ratios(run, case.constants)
    run = run_fedmim(*parts, case.theorem_lr, rounds, seed, on_round=on_round)
    return found | theorem_ratios(run, case.constants)


@dataclass(frozen=True)
class BoundResult:
    """The results."""

    curves: dict[str, tuple[np.ndarray, np.ndarray]]  # by method: measured and bound, for T = 1, 2, ...
    ratios: dict[str, list[float]]  # by lemma: left side over right side, for each case

    def findings(self) -> list[str]:
        """The findings as text."""
        lines = [f"{len(self.ratios[LEMMA_5])} random settings; left side / right side, which must be at most 1:"]
        lines.append(f"  {LEMMA_5}: at most {max(self.ratios[LEMMA_5]):.1e}")
        for name, seen in self._inequalities().items():
            lines.append(f"  {name}: largest {max(seen):.2g}, median {np.median(seen):.2g}")
        slack = [bound[-1] / measured[-1] for measured, bound in self.curves.values()]
        rounds = len(self.curves["FedAvg"][0])
        lines.append(f"after {rounds} rounds the bound is {min(slack):.0f} to {max(slack):.0f} times the measured one")
        return lines

    def draw(self, path: Path) -> None:
        """Draw the figure."""
        title = "Theorem 1 and its lemmas in simulated runs"
        with plotting.two_panels(path, title) as (left, right):
            self._draw_curves(left)
            self._draw_ratios(right)

    def _draw_curves(self, axes: Axes) -> None:
        for (name, (measured, bound)), width in zip(self.curves.items(), (5.0, 3.0, 1.2), strict=True):
            rounds, colour = np.arange(1, len(measured) + 1), method_colour(name)
            axes.plot(rounds, bound, "--", color=colour, label=f"{name}, bound", linewidth=width)
            axes.plot(rounds, measured, color=colour, label=f"{name}, measured", linewidth=width)
        title = "non-convex problem, half the largest admissible learning rate"
        plotting.finish_panel(axes, "rounds T", "min ||grad f(u_t)||²", title)

    def _draw_ratios(self, axes: Axes) -> None:
        shown = self._inequalities()
        jitter = np.random.default_rng(0)
        for place, seen in enumerate(shown.values()):
            heights = -place + jitter.uniform(-0.22, 0.22, len(seen))
            axes.scatter(seen, heights, s=14, color=method_colour("FedMIM"), alpha=0.55, linewidths=0)
            axes.plot([np.median(seen)] * 2, [-place - 0.3, -place + 0.3], color=INK, linewidth=1.4)
        axes.axvline(1, color=INK, linewidth=1)
        title = f"{len(self.ratios[LEMMA_5])} random settings; the bar is the median"
        plotting.finish_panel(axes, "left side / right side (1: equality)", "", title, log="x")
        axes.set_yticks([-place for place in range(len(shown))], list(shown), fontsize=8)

    def _inequalities(self) -> dict[str, list[float]]:
        """The ratios above rounding, without the identity in Lemma 5."""
        others = {name: ratios for name, ratios in self.ratios.items() if name != LEMMA_5}
        return {name: [ratio for ratio in ratios if ratio > ROUNDING] for name, ratios in others.items()}


def demonstrate_speedup(
    on_start: OnStart,
    actives: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    rounds: int = 512,
    more_rounds: Sequence[int] = (1024,),
    steps: Sequence[int] = (1, 2, 4, 8, 16),
    steps_rounds: int = 256,
) -> SpeedupResult:
    """Run FedMIM, A = 1/2, on a noisy non-convex problem, with more clients, more rounds and more local steps.

    Each S runs for `rounds` rounds; the first, middle and last S also for `more_rounds`.
    """
    some = {actives[0], actives[len(actives) // 2], actives[-1]}
    pairs = [(s, t) for s in actives for t in (rounds, *(more_rounds if s in some else ()))]
    on_round = on_start(sum(t for _, t in pairs) + 2 * len(steps) * steps_rounds)

    def run(problem: NonConvexProblem, active: int, steps: int, rounds: int) -> SyntheticRun:
        federation = FederationShape(_CLIENTS, active, steps)
        lr = remark_1_lr(problem.constants(), federation, rounds)
        return run_fedmim(problem, federation, HALF_INERTIA, lr, rounds, on_round=on_round)

    alike, unlike = (NonConvexProblem.draw(_CLIENTS, _DIMENSION, spread, sigma=2.0) for spread in (0.0, 0.5))
    by_steps = {
        f"G = {g}": [run(problem, 8, k, steps_rounds) for k in steps]
        for g, problem in (("0", alike), (f"{unlike.constants().G:.2g}", unlike))
    }
    return SpeedupResult([run(alike, s, _STEPS, t) for s, t in pairs], by_steps, unlike.constants())


@dataclass(frozen=True)
class SpeedupResult:
    """The results."""

    speedup: list[SyntheticRun]
    by_steps: dict[str, list[SyntheticRun]]
    unlike: ProblemConstants

    def fit(self) -> tuple[float, float]:
        """Exponent and factor of the error against S K T; the theorem's exponent is -1/2."""
        errors = [run.mean_error for run in self.speedup]
        return plotting.fit_power_law([run.gradients_taken for run in self.speedup], errors)

    def exponent_in_s(self) -> float:
        """Exponent of the error against S, at the T that all S share."""
        rounds = [len(run.clients) for run in self.speedup]
        same = [run for run in self.speedup if len(run.clients) == max(rounds, key=rounds.count)]
        return plotting.fit_power_law([run.federation.active for run in same], [run.mean_error for run in same])[0]

    def knee(self) -> float:
        """sigma^2 / (4 G^2) of the heterogeneous problem."""
        return self.unlike.sigma**2 / (4 * self.unlike.G**2)

    def findings(self) -> list[str]:
        """The findings as text."""
        first, last = (self.speedup[place].federation.active for place in (0, -1))
        lines = [
            f"error against S K T: slope {self.fit()[0]:.2f} (the theorem: -0.5), S from {first} to {last}; "
            f"against S alone {self.exponent_in_s():.2f}"
        ]
        for name, runs in self.by_steps.items():
            few, many = runs[0].federation.steps, runs[-1].federation.steps
            gain = runs[0].mean_error / runs[-1].mean_error
            lines.append(f"{name}: K = {many} instead of {few} reduces the error {gain:.1f} times")
        return [*lines, f"for the latter, sigma^2 / (4 G^2) is K = {self.knee():.1f}"]

    def draw(self, path: Path) -> None:
        """Draw the figure."""
        title = "Remark 1: linear speed-up with the clients per round, and the effect of local steps"
        with plotting.two_panels(path, title) as (left, right):
            self._draw_speedup(left)
            self._draw_steps(right)

    def _draw_speedup(self, axes: Axes) -> None:
        actives = sorted({run.federation.active for run in self.speedup})
        for place, active in enumerate(actives):
            shade = CLIENT_SHADES[place * (len(CLIENT_SHADES) - 1) // max(1, len(actives) - 1)]
            name: str | None = f"S = {active}"
            for run in (run for run in self.speedup if run.federation.active == active):
                at, face = (run.gradients_taken, run.mean_error), shade if run.admissible else "white"
                axes.plot(*at, "o", color=shade, markerfacecolor=face, markersize=7, label=name)
                name = None  # once in the legend
        gradients, fit = [run.gradients_taken for run in self.speedup], self.fit()
        plotting.plot_power_law(axes, [min(gradients), max(gradients)], fit, INK, label=f"slope {fit[0]:.2f}")
        title = f"FedMIM, A = 1/2, non-convex, K = {_STEPS}; hollow: above the sufficient learning rate"
        plotting.finish_panel(axes, "S K T", "mean over rounds of ||grad f(u_t)||²", title, legend={"ncols": 2})

    def _draw_steps(self, axes: Axes) -> None:
        looks = (("o-", CLIENT_SHADES[1], 0.0), ("s-", CLIENT_SHADES[4], self.unlike.G**2))
        for (name, runs), (style, shade, g2) in zip(self.by_steps.items(), looks, strict=True):
            steps = [run.federation.steps for run in runs]
            axes.plot(steps, [run.mean_error for run in runs], style, color=shade, label=f"{name}, measured")
            lead = [sqrt(self.unlike.sigma**2 / k + 4 * g2) for k in steps]
            scaled = [runs[0].mean_error * value / lead[0] for value in lead]
            axes.plot(steps, scaled, "--", color=shade, linewidth=1, label=f"{name}, ~ sqrt(σ²/K + 4 G²)")
        axes.axvline(self.knee(), color=INK, linewidth=0.8, linestyle=":")
        axes.annotate("σ²/(4 G²)", (self.knee(), 0.02), xycoords=("data", "axes fraction"), fontsize=8, color=INK)
        title = f"S = 8, T = {len(next(iter(self.by_steps.values()))[0].clients)}"
        plotting.finish_panel(axes, "local steps K", "mean over rounds of ||grad f(u_t)||²", title)
