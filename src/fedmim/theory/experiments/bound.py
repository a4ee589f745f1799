"""Theorem 1 and the lemmas on many random settings: nothing is broken, and where the slack is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedmim.theory.bounds import Theorem1
from fedmim.theory.constants import largest_rate
from fedmim.theory.experiments import Tell
from fedmim.theory.figures import INK, METHODS, colour, label, logarithmic, panels, save
from fedmim.theory.lemmas import LEMMA_5, lemma_ratios, mean_gradients, theorem_ratios
from fedmim.theory.problem import Federation
from fedmim.theory.random_settings import random_setting
from fedmim.theory.valleys import Valleys
from fedmim.theory.walking import walk

NOTHING = 1e-12  # ratios below are rounding, as of the drift of a client with one step


@dataclass(frozen=True)
class BoundExperiment:
    """Runs of three methods against their bounds, and the lemmas' ratios on random settings."""

    settings: int = 24
    rounds: int = 20  # of each random setting, twice: at a rate for the lemmas and one for the theorem
    curve_rounds: int = 600

    @property
    def rounds_in_all(self) -> int:
        """How many rounds of the simulator it takes."""
        return 2 * self.settings * self.rounds + len(METHODS) * self.curve_rounds

    def run(self, tell: Tell) -> BoundResult:
        """Do it."""
        curves = {name: self._curve(name, tell) for name in METHODS}
        ratios: dict[str, list[float]] = {}
        for seed in range(self.settings):
            drawn = random_setting(seed)
            parts = drawn.synthetic, drawn.federation, drawn.inertia
            known = drawn.synthetic, drawn.problem, drawn.federation, drawn.inertia
            run = walk(*parts, drawn.lemma_rate, self.rounds, seed, record=True, tell=tell)
            found = lemma_ratios(run, *known, drawn.lemma_rate)
            run = walk(*parts, drawn.theorem_rate, self.rounds, seed, tell=tell)
            found |= theorem_ratios(run, *known, drawn.theorem_rate)
            for name, ratio in found.items():
                ratios.setdefault(name, []).append(ratio)
        return BoundResult(curves, ratios)

    def _curve(self, name: str, tell: Tell) -> tuple[np.ndarray, np.ndarray]:
        """min over t < T of ||grad f(u_t)||^2, and the bound, for T = 1, 2, ..."""
        problem = Valleys.draw(clients=32, sigma=0.5, spread=0.5)
        federation, inertia = Federation(32, 8, 4), METHODS[name]
        lr = largest_rate(problem.problem(), federation, inertia) / 2
        run = walk(problem, federation, inertia, lr, self.curve_rounds, tell=tell)
        square = problem.gradient(run.ahead[:-1]).square().sum(1)
        largest = float(mean_gradients(run.ahead, lr, federation.steps).square().sum(1).max())
        bound = Theorem1(problem.problem(c=largest), federation, inertia, lr)
        bounds = [bound.at(rounds) for rounds in range(1, self.curve_rounds + 1)]
        return torch.cummin(square, 0).values.numpy(), np.array(bounds)


@dataclass(frozen=True)
class BoundResult:
    """What was found."""

    curves: dict[str, tuple[np.ndarray, np.ndarray]]  # by method: measured and bound, for T = 1, 2, ...
    ratios: dict[str, list[float]]  # by lemma: left side over right side, for each setting

    def findings(self) -> list[str]:
        """In words, with the numbers."""
        lines = [f"{len(next(iter(self.ratios.values())))} random settings; left side over right side, at most 1:"]
        for name, values in self.ratios.items():
            if name == LEMMA_5:
                lines.append(f"  {name}: at most {max(values):.1e}")
            else:
                seen = [value for value in values if value > NOTHING]
                lines.append(f"  {name}: largest {max(seen):.2g}, median {np.median(seen):.2g}")
        measured, bound = (np.array([curve[i][-1] for curve in self.curves.values()]) for i in (0, 1))
        lines.append(f"after {len(self.curves['FedAvg'][0])} rounds the bound is {min(bound / measured):.0f} to ")
        lines[-1] += f"{max(bound / measured):.0f} times what was measured"
        return lines

    def draw(self, path: Path) -> None:
        """As a figure."""
        figure, (left, right) = panels("Theorem 1 and what it is made of, in runs of the simulator")
        for (name, (measured, bound)), width in zip(self.curves.items(), (5.0, 3.0, 1.2), strict=True):
            rounds = np.arange(1, len(measured) + 1)
            left.plot(rounds, bound, "--", color=colour(name), label=f"{name}, bound", linewidth=width)
            left.plot(rounds, measured, color=colour(name), label=f"{name}, measured", linewidth=width)
        logarithmic(left, "rounds T", "min ||grad f(u_t)||²")
        left.legend(frameon=False, fontsize=8)
        left.set_title("a non-convex problem, half the largest admissible rate", fontsize=9)
        shown = {name: values for name, values in self.ratios.items() if name != LEMMA_5}
        jitter = np.random.default_rng(0)
        for place, values in enumerate(shown.values()):
            seen = np.array([value for value in values if value > NOTHING])
            heights = -place + jitter.uniform(-0.22, 0.22, len(seen))
            right.scatter(seen, heights, s=14, color=colour("FedMIM"), alpha=0.55, linewidths=0)
            right.plot([np.median(seen)] * 2, [-place - 0.3, -place + 0.3], color=INK, linewidth=1.4)
        right.axvline(1, color=INK, linewidth=1)
        right.set_xscale("log")
        label(right, "left side / right side (1: equality)", "")
        right.set_yticks([-place for place in range(len(shown))], list(shown), fontsize=8)
        right.set_title(f"{len(next(iter(shown.values())))} random settings; the bar is the median", fontsize=9)
        save(figure, path)
