"""The progress of `simulate`: one line after two seconds, with the round, the accuracy and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from fedmim.display import LiveLine
from fedmim.simulation.record import Record

QUIET_SECONDS = 2.0  # seconds before the line is shown


@contextmanager
def showing_rounds(name: str, rounds: int) -> Iterator[Callable[[Record, str | None], None]]:
    """Yields a function to call after each round, with the reason if the run stops there."""
    begin, accuracy = time.monotonic(), ""
    with LiveLine(QUIET_SECONDS) as line:

        def show(record: Record, stopped: str | None) -> None:
            nonlocal accuracy
            if record.test_accuracy is not None:
                accuracy = f", accuracy {100 * record.test_accuracy:.2f} %"
            elapsed = time.monotonic() - begin
            left = elapsed * (rounds - record.round) / record.round
            why = f", {stopped}" if stopped else ""
            times = f"{_clock(elapsed)} in all" if stopped or record.round == rounds else f"{_clock(left)} left"
            line.show(f"{name}: round {record.round} of {rounds}{accuracy}{why}, {times}")

        yield show


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
