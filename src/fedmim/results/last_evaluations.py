"""The evaluations behind the accuracy of a run: its last ten, but none before the last third of its rounds.

A single evaluation is too noisy, and the mean must not include the beginning of a short run or of one that is seldom
evaluated. So it can be a mean of fewer than ten, and every table says of how many.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedmim.experiments.run_folder import Records
from fedmim.results.record_columns import column

MOST_EVALUATIONS = 10


def last_accuracies(records: Records) -> list[float]:
    """The accuracies to average: at least the last one, empty if the run has not been evaluated."""
    values = column(records, "test_accuracy")
    known = [value for value in values if value is not None]
    late = [value for value in values[2 * len(values) // 3 :] if value is not None]
    return late[-MOST_EVALUATIONS:] or known[-1:]


def how_many(counts: Iterable[float]) -> str:
    """The number of evaluations behind the means of a table: 10, or 5 to 10 if the runs differ."""
    known = sorted(map(int, counts)) or [MOST_EVALUATIONS]
    return " to ".join(map(str, dict.fromkeys((known[0], known[-1]))))


def which_evaluations(number: str) -> str:
    """The evaluations behind the means in words, from `how_many`."""
    words = {"1": "the last evaluation", str(MOST_EVALUATIONS): "the last ten evaluations"}
    return words.get(number, f"the last {number} evaluations")


def explained(number: str) -> str:
    """The same, with the reason if there are fewer than ten."""
    rule = "" if number == str(MOST_EVALUATIONS) else " (at most ten, and none before the last third of the rounds)"
    return which_evaluations(number) + rule
