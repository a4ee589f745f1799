"""Experiments that show the theorems at work in the simulator, each with its figure and its findings in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

Tell = Callable[[], object]  # called after every round, for progress


class Result(Protocol):
    """What an experiment found."""

    def findings(self) -> list[str]:
        """In words, with the numbers."""

    def draw(self, path: Path) -> None:
        """As a figure."""


class Experiment(Protocol):
    """Something to be seen."""

    @property
    def rounds_in_all(self) -> int:
        """How many rounds of the simulator it takes."""

    def run(self, tell: Tell) -> Result:
        """Do it."""
