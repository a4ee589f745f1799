"""The numbers behind the page's charts, as JSON; the page averages over seeds and smooths them itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from fedmim.experiments.run_folder import Records
from fedmim.report.skew import Skew
from fedmim.report.style import label_styles
from fedmim.results.grouping import RunGroup
from fedmim.results.method_results import RunResult

FIGURES = {
    "accuracy": "test_accuracy",
    "test_loss": "test_loss",
    "train_loss": "train_loss",
    "consistency": "consistency",
}
POINTS = 25_000  # of all runs together, so that a page of hundreds of runs still opens
LEAST, MOST = 100, 1000  # of one run


def chart_data(groups: Sequence[RunGroup], skews: Sequence[Skew | None]) -> dict[str, Any]:
    """What the page draws of these groups."""
    runs = sum(len(group.runs) for group in groups)
    points = min(MOST, max(LEAST, POINTS // max(runs, 1)))
    return {"problems": [_group(group, skew, points) for group, skew in zip(groups, skews, strict=True)]}


def _group(group: RunGroup, skew: Skew | None, points: int) -> dict[str, Any]:
    lines = []
    for label, style in label_styles(group.methods).items():
        whole = [_run(run, points) for line in group.lines if line.label == label for run in line.runs]
        behind = [_run(run, points) for run in group.behind if run.run.label == label]
        lines.append({"label": label, **asdict(style), "dash": style.dash_name, "runs": whole, "behind": behind})
    return {"target": group.target, "lines": lines, "skew": skew and asdict(skew)}


def _run(run: RunResult, points: int) -> dict[str, Any]:
    """The curves of one run, thinned to so many points; bytes and seconds are sums from the start."""
    records = run.records
    sent = list(accumulate(record["bytes_up"] + record["bytes_down"] for record in records))
    seconds = list(accumulate(record["seconds"] for record in records))
    kept = thinned(records, points)
    return {
        "seed": run.seed,
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
