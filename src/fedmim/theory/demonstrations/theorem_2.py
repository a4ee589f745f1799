"""Theorem 2: under PL the error decreases exponentially to a floor that is proportional to eta / S."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from fedmim.theory import plotting
from fedmim.theory.bounds import Theorem2
from fedmim.theory.constants import HALF_INERTIA, SHOWN_METHODS, FederationShape, Inertia, largest_lr
from fedmim.theory.plotting import INK
from fedmim.theory.quadratics import QuadraticProblem
from fedmim.theory.synthetic_runs import OnStart, SyntheticRun, run_fedmim

_CLIENTS, _ACTIVE, _STEPS = 64, 4, 4
TONES = ("#f0a868", "#d55e00", "#7a3300")


def demonstrate_polyak(
    on_start: OnStart,
    rounds: int = 600,
    times_cap: Sequence[float] = (0.8, 3.0, 10.0),
    actives: Sequence[int] = (2, 16),
) -> PolyakResult:
    """Run FedMIM on a noisy quadratic: three learning rates, other numbers of clients, and stronger inertia.

    Learning rates are multiples of the largest admissible one; `actives` use the middle one.
    """
    on_round = on_start(rounds * (2 * len(times_cap) + len(actives)))
    drawn = QuadraticProblem.draw(_CLIENTS, 16, sigma=1.0, spread=0.3, eigenvalues=(0.6, 1.0))
    problem = replace(drawn, start=drawn.optimum + 0.5)

    def fall(times: float, active: int = _ACTIVE, inertia: Inertia = HALF_INERTIA) -> ErrorFall:
        federation = FederationShape(_CLIENTS, active, _STEPS)
        lr = times * largest_lr(problem.constants(), federation, inertia)
        return ErrorFall(run_fedmim(problem, federation, inertia, lr, rounds, on_round=on_round), times)

    return PolyakResult(
        [fall(times) for times in times_cap],
        [fall(times_cap[len(times_cap) // 2], active) for active in actives],
        [fall(times, inertia=SHOWN_METHODS["FedMIM"]) for times in times_cap],
        problem.mu,
    )


@dataclass(frozen=True)
class ErrorFall:
    """A run at a multiple of the largest learning rate that the theorem allows, and its floor."""

    run: SyntheticRun
    times_cap: float

    @property
    def floor(self) -> float:
        """||grad f(u_t)||^2, the mean over the last third."""
        return _mean_of_last_third(self.run.at_u)

    @property
    def floor_of_model(self) -> float:
        """||grad f(x_t)||^2, the mean over the last third."""
        return _mean_of_last_third(self.run.at_x)

    @property
    def lr_per_client(self) -> float:
        """eta / S."""
        return self.run.lr / self.run.federation.active

    @property
    def decay(self) -> float:
        """The decay exponent in units of eta K, fitted until the error is ten times its floor."""
        errors = self.run.at_u.numpy()
        reached = np.flatnonzero(errors < 10 * self.floor)
        until = max(5, int(reached[0]) if len(reached) else len(errors))
        fitted = np.polyfit(np.arange(until), np.log(errors[:until]), 1)[0]
        return float(-fitted / (self.run.lr * _STEPS))

    def promise(self) -> Theorem2:
        """The bound of the theorem with the measured C; raises if it does not allow the learning rate."""
        constants = self.run.problem.constants(c=self.run.gradient_bound)
        return Theorem2(constants, self.run.federation, self.run.inertia, self.run.lr)


def _mean_of_last_third(errors: Tensor) -> float:
    return float(errors.numpy()[-len(errors) // 3 :].mean())


@dataclass(frozen=True)
class PolyakResult:
    """The results."""

    by_lr: list[ErrorFall]  # A = 1/2
    by_active: list[ErrorFall]
    strong: list[ErrorFall]  # A = 0.1, at the same multiples of the cap
    mu: float

    def floor_fit(self) -> tuple[float, float]:
        """Exponent and factor of the floor against eta / S; the theorem's exponent is 1 to first order."""
        falls = self.by_lr + self.by_active
        return plotting.fit_power_law([fall.lr_per_client for fall in falls], [fall.floor for fall in falls])

    def findings(self) -> list[str]:
        """The findings as text."""
        decays = ", ".join(f"{fall.decay:.2f}" for fall in self.by_lr)
        pairs = list(zip(self.strong, self.by_lr, strict=True))
        extra = ", ".join(f"{strong.floor / half.floor:.2f}" for strong, half in pairs)
        model = ", ".join(f"{strong.floor_of_model / half.floor_of_model:.2f}" for strong, half in pairs)
        promises = [
            f"at {fall.times_cap:g} times the largest learning rate the floor is {fall.floor:.2g}; Theorem 2 needs "
            f"{fall.promise().least_rounds} rounds, and its floor Psi_2 is {fall.promise().floor:.2g}"
            for fall in self.by_lr
            if fall.run.admissible
        ]
        return [
            f"the error decreases as exp(-c eta K t) with c = {decays} at these learning rates; mu is {self.mu:.2f}, "
            "so c is at least 2 mu for gradient flow; the theorem guarantees mu lambda with lambda below 1/2",
            f"floor against eta / S: slope {self.floor_fit()[0]:.2f} (the theorem: 1 to first order)",
            f"A = 0.1 against A = 0.5 at the same multiples of the cap: floor {extra} times at u_t, {model} at x_t",
            *promises,
        ]

    def draw(self, path: Path) -> None:
        """Draw the figure."""
        title = "Theorem 2: under PL an exponential decrease to a floor (FedMIM, quadratic, noise)"
        with plotting.two_panels(path, title) as (left, right):
            self._draw_falls(left)
            self._draw_floors(right)

    def _draw_falls(self, axes: Axes) -> None:
        for fall, tone in zip(self.by_lr, TONES, strict=False):
            name = f"{fall.times_cap:g} times the largest admissible learning rate"
            axes.plot(fall.run.at_u, color=tone, label=name, linewidth=1.2)
            axes.axhline(fall.floor, color=tone, linewidth=0.8, linestyle=":")
        title = f"A = 1/2, S = {_ACTIVE} of {_CLIENTS}; dotted: the floor, mean of the last third"
        plotting.finish_panel(axes, "round t", "||grad f(u_t)||²", title, log="y")

    def _draw_floors(self, axes: Axes) -> None:
        falls = self.by_lr + self.by_active
        for fall in falls:
            at, name = (fall.lr_per_client, fall.floor), f"S = {fall.run.federation.active}"
            axes.plot(*at, "o", color=TONES[1], markersize=7)
            axes.annotate(name, at, xytext=(7, -9), textcoords="offset points", fontsize=8)
        x, fit = [fall.lr_per_client for fall in falls], self.floor_fit()
        plotting.plot_power_law(axes, [min(x), max(x)], fit, TONES[1], label=f"A = 1/2: slope {fit[0]:.2f}")
        places = [fall.lr_per_client for fall in self.strong]
        axes.plot(places, [fall.floor for fall in self.strong], "D", color=INK, label="A = 0.1, at u_t")
        floors = [fall.floor_of_model for fall in self.strong]
        axes.plot(places, floors, "D", color=INK, markerfacecolor="none", label="A = 0.1, at x_t")
        plotting.finish_panel(axes, "eta / S", "floor of ||grad f(u_t)||²")
