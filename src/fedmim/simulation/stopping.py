"""When a run stops before its last round: `Settings.until` and `Settings.patience`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fedmim.errors import UserError
from fedmim.simulation.settings import Settings


def stop_reason(settings: Settings, records: Iterable[Mapping[str, Any]]) -> str | None:
    """Why a run with these records stopped, and where; None if it goes on, or ends only because all rounds are done."""
    stopping = Stopping(settings)
    for record in records if settings.stops_early else ():
        stopping.see(record["round"], record["test_accuracy"])
    return stopping.reason


class Stopping:
    """Follows the evaluations of a run. `reason` says why and where it stops; None: it goes on.

    The first evaluation that meets a condition decides, so later evaluations change nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self.reason: str | None = None
        self._settings = settings
        self._best, self._best_round = -math.inf, 0

    def see(self, round: int, accuracy: float | None) -> None:
        """Take in the test accuracy of a round; None or not finite, as None in a file: it was not evaluated."""
        until, patience, rounds = self._settings.until, self._settings.patience, self._settings.rounds
        if self.reason or accuracy is None or not math.isfinite(accuracy):
            return
        if accuracy > self._best:
            self._best, self._best_round = accuracy, round
        if until is not None and accuracy >= until:
            self.reason = f"reached {until:g} in round {round}"
        elif patience is not None and round - self._best_round >= patience and round < rounds:
            self.reason = f"stopped in round {round}, no improvement since round {self._best_round}"


def check_metric(settings: Settings, metric: float | None) -> None:
    """Reject early stopping for a task without a metric; `metric` is that of any model."""
    for name in ("until", "patience"):
        if getattr(settings, name) is not None and metric is None:
            raise UserError(f"{name}: this task has no accuracy; give its Task a metric, or remove {name}")
