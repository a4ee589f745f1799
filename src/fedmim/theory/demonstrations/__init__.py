"""Demonstrations of the theorems in runs of the simulator, each with its figure and its findings in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fedmim.theory.demonstrations.drift import demonstrate_heterogeneity, demonstrate_quadratics
from fedmim.theory.demonstrations.theorem_1 import demonstrate_bound, demonstrate_speedup
from fedmim.theory.demonstrations.theorem_2 import demonstrate_polyak
from fedmim.theory.synthetic_runs import OnStart


class DemonstrationResult(Protocol):
    """What a demonstration found."""

    def findings(self) -> list[str]:
        """In words, with the numbers."""

    def draw(self, path: Path) -> None:
        """As a figure."""


DEMONSTRATIONS: dict[str, Callable[[OnStart], DemonstrationResult]] = {  # by the name of the figure
    "bound": demonstrate_bound,
    "speedup": demonstrate_speedup,
    "polyak": demonstrate_polyak,
    "heterogeneity": demonstrate_heterogeneity,
    "quadratics": demonstrate_quadratics,
}
