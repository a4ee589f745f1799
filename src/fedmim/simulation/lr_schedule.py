"""The schedule of the local learning rate: the factor of `lr` in each round t = 0, 1, ..., T - 1.

exponential         lr_decay ** t
constant            1
cosine              (1 + cos(pi t / T)) / 2        Loshchilov and Hutter 2017, without restarts
step:EVERY,FACTOR   FACTOR ** (t // EVERY)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedmim.errors import UserError

SCHEDULE_NAMES = ("exponential", "constant", "cosine", "step")
SCHEDULES = "exponential, constant, cosine or step:EVERY,FACTOR, for example step:50,0.1"


@dataclass(frozen=True)
class LrSchedule:
    """How the local learning rate changes over the rounds; `every` and `scale` are those of step."""

    name: str = "exponential"
    every: int = 1
    scale: float = 1.0

    @classmethod
    def parse(cls, text: str) -> LrSchedule:
        """The schedule of `Settings.lr_schedule`."""
        name, given, numbers = str(text).partition(":")
        if name not in SCHEDULE_NAMES or bool(given) != (name == "step"):
            raise UserError(f"lr_schedule: must be {SCHEDULES}, got {str(text)[:40]!r}")
        if name != "step":
            return cls(name)
        try:
            every, scale = numbers.split(",")
            schedule = cls(name, int(every), float(scale))
        except ValueError:
            raise UserError(f"lr_schedule: must be {SCHEDULES}, got {str(text)[:40]!r}") from None
        if schedule.every < 1 or not 0 < schedule.scale < math.inf:
            raise UserError(
                f"lr_schedule: EVERY must be at least 1 and FACTOR above 0 and finite, got {str(text)[:40]!r}"
            )
        return schedule

    @property
    def needs_rounds(self) -> bool:
        """Whether the learning rate of a round depends on the number of rounds."""
        return self.name == "cosine"

    def factor(self, round: int, rounds: int, lr_decay: float) -> float:
        """The factor of `lr` in a round t = 0, 1, ... A cosine keeps its last value after the last round."""
        if self.name == "exponential":
            return lr_decay**round
        if self.name == "cosine":
            return (1 + math.cos(math.pi * min(round, rounds - 1) / rounds)) / 2
        return self.scale ** (round // self.every)  # constant: 1
