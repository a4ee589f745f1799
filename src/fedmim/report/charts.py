"""The numbers behind the page's charts, as JSON; the page averages over seeds and smooths them itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from fedmim.report.results import Method, Records
from fedmim.report.sets import Problem
from fedmim.report.skew import skew_of

FIGURES = {
    "accuracy": "test_accuracy",
    "test_loss": "test_loss",
    "train_loss": "train_loss",
    "consistency": "consistency",
}
POINTS = 25_000  # of all runs together, so that a page of hundreds of runs still opens
LEAST, MOST = 100, 1000  # of one run


def charts(problems: Sequence[Problem]) -> dict[str, Any]:
    """What the page draws of these problems."""
    runs = sum(problem.count[1] for problem in problems)
    points = min(MOST, max(LEAST, POINTS // max(runs, 1)))
    return {"problems": [_problem(problem, points) for problem in problems]}


def _problem(problem: Problem, points: int) -> dict[str, Any]:
    skew = skew_of(problem)
    lines = []
    for label, style in problem.styles.items():
        whole = [_run(*run, points) for method in problem.lines if method.label == label for run in _runs(method)]
        behind = [_run(*run, points) for method in problem.behind if method.label == label for run in _runs(method)]
        lines.append({"label": label, **asdict(style), "dash": style.dash_name, "runs": whole, "behind": behind})
    return {"target": problem.target, "lines": lines, "skew": skew and asdict(skew)}


def _runs(method: Method) -> list[tuple[int, Records]]:
    return list(zip(method.seeds, method.records, strict=True))


def _run(seed: int, records: Records, points: int) -> dict[str, Any]:
    """The curves of one run, thinned to so many points; bytes and seconds are sums from the start."""
    sent = list(accumulate(record["bytes_up"] + record["bytes_down"] for record in records))
    seconds = list(accumulate(record["seconds"] for record in records))
    kept = thinned(records, points)
    return {
        "seed": seed,
        "round": [records[i]["round"] for i in kept],
        "bytes": [sent[i] for i in kept],
        "seconds": [round(seconds[i], 2) for i in kept],
        **{name: [_digits(records[i][figure]) for i in kept] for name, figure in FIGURES.items()},
    }


def thinned(records: Records, points: int) -> list[int]:
    """Which records to draw: all, or evenly spaced ones to the last; rounds with an evaluation go before others."""
    if len(records) <= points:
        return list(range(len(records)))
    evaluated = [i for i, record in enumerate(records) if record["test_accuracy"] is not None]
    among = evaluated or range(len(records))
    if len(among) <= points:
        return list(among)
    return [among[(number + 1) * len(among) // points - 1] for number in range(points)]


def _digits(value: float | None) -> float | None:
    """Six digits, which is more than the page shows."""
    return None if value is None else float(f"{value:.6g}")
