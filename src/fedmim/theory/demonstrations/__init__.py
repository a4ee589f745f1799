"""Demonstrations of the theorems in runs of the simulator, each with its figure and its findings in words."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fedmim.theory.demonstrations.drift import HeterogeneityDemonstration, QuadraticsDemonstration
from fedmim.theory.demonstrations.theorem_1 import BoundDemonstration, SpeedupDemonstration
from fedmim.theory.demonstrations.theorem_2 import PolyakDemonstration
from fedmim.theory.synthetic_runs import OnRound


class DemonstrationResult(Protocol):
    """What a demonstration found."""

    def findings(self) -> list[str]:
        """In words, with the numbers."""

    def draw(self, path: Path) -> None:
        """As a figure."""


class Demonstration(Protocol):
    """Runs of the simulator that show a theorem."""

    @property
    def total_rounds(self) -> int:
        """How many rounds of the simulator it takes."""

    def run(self, on_round: OnRound) -> DemonstrationResult:
        """Run it; `on_round` is called after each round."""


DEMONSTRATIONS: dict[str, Demonstration] = {  # by the name of the figure
    "bound": BoundDemonstration(),
    "speedup": SpeedupDemonstration(),
    "polyak": PolyakDemonstration(),
    "heterogeneity": HeterogeneityDemonstration(),
    "quadratics": QuadraticsDemonstration(),
}
