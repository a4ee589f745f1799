"""The floor moves as G^2: by the chance of which clients are drawn, and by drift, which inertia lowers A^2 times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fedmim.theory.experiments import Tell
from fedmim.theory.figures import METHODS, colour, logarithmic, panels, save, slope
from fedmim.theory.problem import Federation
from fedmim.theory.quadratics import Quadratics
from fedmim.theory.walking import walk

CLIENTS, SOME, STEPS, RATE = 16, 4, 4, 0.1


@dataclass(frozen=True)
class Floor:
    """Where the squared gradient settles: at u_t, of which the theorems speak, and at x_t, the model one uses."""

    u: float
    x: float


@dataclass(frozen=True)
class HeterogeneityExperiment:
    """FedAvg, FedCM and FedMIM without noise on quadratics of growing G, with some of the clients and with all."""

    spreads: tuple[float, ...] = (0.5, 1.0, 2.0)
    rounds_with_some: int = 240
    rounds_with_all: int = 120

    @property
    def rounds_in_all(self) -> int:
        """How many rounds of the simulator it takes."""
        return len(METHODS) * len(self.spreads) * (self.rounds_with_some + self.rounds_with_all)

    def run(self, tell: Tell) -> HeterogeneityResult:
        """Do it."""
        drawn = Quadratics.draw(CLIENTS)
        base = replace(drawn, start=drawn.optimum + 1e-4)
        problems = [base.with_spread(spread) for spread in self.spreads]
        floors = [
            {name: [_floor(each, name, active, rounds, tell) for each in problems] for name in METHODS}
            for active, rounds in ((SOME, self.rounds_with_some), (CLIENTS, self.rounds_with_all))
        ]
        return HeterogeneityResult([each.problem().G for each in problems], *floors)


def _floor(problem: Quadratics, name: str, active: int, rounds: int, tell: Tell) -> Floor:
    run = walk(problem, Federation(CLIENTS, active, STEPS), METHODS[name], RATE, rounds, tell=tell)
    u, x = (float(problem.gradient(path[-rounds // 2 :]).square().sum(1).mean()) for path in (run.ahead, run.models))
    return Floor(u, x)


@dataclass(frozen=True)
class HeterogeneityResult:
    """The floor by method, for each G."""

    g: list[float]
    some: dict[str, list[Floor]]  # some of the clients a round
    everyone: dict[str, list[Floor]]

    def exponents(self) -> dict[str, float]:
        """Of the floor at u_t against G; the theorem says 2."""
        parts = (("some", self.some), ("all", self.everyone))
        return {
            f"{name}, {who}": slope(self.g, [floor.u for floor in floors[name]])[0]
            for who, floors in parts
            for name in floors
        }

    def drift_ratio(self, name: str) -> float:
        """The floor with all clients, where drift alone is left, against FedAvg's."""
        return self.everyone[name][-1].u / self.everyone["FedAvg"][-1].u

    def findings(self) -> list[str]:
        """In words, with the numbers."""
        found = ", ".join(f"{value:.2f}" for value in self.exponents().values())
        plain, heavy = self.some["FedAvg"][-1], self.some["FedMIM"][-1]
        return [
            f"floor against G: slopes {found} (the theorem: 2)",
            f"all clients: FedMIM's floor is {self.drift_ratio('FedMIM'):.4f} of FedAvg's (A^2 = 0.01)",
            f"{SOME} of {CLIENTS} clients: FedMIM's floor is {heavy.u / plain.u:.2f} of FedAvg's at u_t and "
            f"{heavy.x / plain.x:.2f} at x_t: inertia takes away drift, not the chance of who is drawn",
        ]

    def draw(self, path: Path) -> None:
        """As a figure."""
        figure, axes = panels("The floor moves as G² (quadratics, no noise, one rate for all)")
        titles = f"{SOME} of {CLIENTS} clients a round: the chance of who is drawn", "all clients: drift alone"
        for panel, floors, title in zip(axes, (self.some, self.everyone), titles, strict=True):
            for name, values in floors.items():
                exponent, factor = slope(self.g, [floor.u for floor in values])
                ink = colour(name)
                panel.plot(self.g, [floor.u for floor in values], "o", color=ink, label=f"{name}, slope {exponent:.2f}")
                panel.plot(self.g, [factor * g**exponent for g in self.g], color=ink, linewidth=1)
                if name != "FedAvg":
                    panel.plot(self.g, [floor.x for floor in values], "D", color=ink, markerfacecolor="none")
            panel.plot([], [], "D", color="black", markerfacecolor="none", label="at x_t, where it is not u_t")
            logarithmic(panel, "heterogeneity G", "floor of ||grad f(u_t)||²")
            panel.legend(frameon=False, fontsize=8)
            panel.set_title(title, fontsize=9)
        save(figure, path)
