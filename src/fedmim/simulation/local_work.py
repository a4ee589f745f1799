"""The distribution of local work: which multiple of the usual local epochs or steps a client does in a round."""

from __future__ import annotations

from dataclasses import dataclass

from fedmim.errors import UserError

FORMS = "uniform:LOW,HIGH or uniform:LOW,HIGH,PART, for example uniform:0.2,1 or uniform:0,1,0.9"
MOST_WORK = 1000.0  # the largest multiple


@dataclass(frozen=True)
class LocalWork:
    """With probability `part` a factor drawn uniformly from [low, high], otherwise 1."""

    low: float = 1.0
    high: float = 1.0
    part: float = 1.0

    @classmethod
    def parse(cls, text: str | None) -> LocalWork:
        """The distribution of `Settings.work`; None: all clients do the usual work."""
        if text is None:
            return cls()
        kind, _, numbers = str(text).partition(":")
        try:
            work = cls(*map(float, numbers.split(",")))
        except (ValueError, TypeError):
            work = None
        if kind != "uniform" or work is None or "," not in numbers:
            raise UserError(f"work: must be {FORMS}, got {str(text)[:40]!r}")
        work._check()
        return work

    def _check(self) -> None:
        if not (0 <= self.low <= self.high <= MOST_WORK and self.high > 0):
            raise UserError(
                f"work: needs 0 <= LOW <= HIGH <= {MOST_WORK:g} and HIGH above 0, got {self.low:g},{self.high:g}"
            )
        if not 0 < self.part <= 1:
            raise UserError(f"work: PART must be above 0 and at most 1, got {self.part:g}")

    def factor(self, chance: float, place: float) -> float:
        """The factor of a client, from two numbers between 0 and 1."""
        return self.low + (self.high - self.low) * place if chance < self.part else 1.0

    @property
    def mean(self) -> float:
        """The mean factor."""
        return self.part * (self.low + self.high) / 2 + 1 - self.part

    @property
    def most(self) -> float:
        """The largest factor."""
        return max(self.high, 1.0) if self.part < 1 else self.high
