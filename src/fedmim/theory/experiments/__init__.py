"""Experiments that show the theorems at work in the simulator, each with its figure and its findings in words."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fedmim.theory.walking import Tell

__all__ = ["Experiment", "Result", "Tell"]


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
