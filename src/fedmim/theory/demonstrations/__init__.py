"""Demonstrations of the theorems in simulated runs, each with a figure and its findings as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fedmim.theory.demonstrations.drift import demonstrate_heterogeneity, demonstrate_quadratics
from fedmim.theory.demonstrations.pictures import demonstrate_paths, demonstrate_round
from fedmim.theory.demonstrations.theorem_1 import demonstrate_bound, demonstrate_speedup
from fedmim.theory.demonstrations.theorem_2 import demonstrate_polyak
from fedmim.theory.synthetic_runs import OnStart


class DemonstrationResult(Protocol):
    """The result of a demonstration."""

    def findings(self) -> list[str]:
        """The findings as text."""

    def draw(self, path: Path) -> None:
        """Draw the figure."""


DEMONSTRATIONS: dict[str, Callable[[OnStart], DemonstrationResult]] = {  # by name of the figure
    "paths": demonstrate_paths,
    "round": demonstrate_round,
    "bound": demonstrate_bound,
    "speedup": demonstrate_speedup,
    "polyak": demonstrate_polyak,
    "heterogeneity": demonstrate_heterogeneity,
    "quadratics": demonstrate_quadratics,
}
