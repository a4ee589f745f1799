"""The data of the charts on the page, as JSON. The page itself averages over seeds and smooths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from operator import add
from typing import Any

import numpy as np

from fedmim.experiments.methods import is_reference
from fedmim.experiments.run_folder import Records
from fedmim.report.client_charts import ClientCharts
from fedmim.report.skew import Skew
from fedmim.report.style import label_styles
from fedmim.results.grouping import RunGroup
from fedmim.results.method_results import RunResult
from fedmim.results.record_columns import column, is_timed

FIGURES = {
    "accuracy": "test_accuracy",
    "test_loss": "test_loss",
    "train_loss": "train_loss",
    "consistency": "consistency",
}
POINTS = 50_000  # of all runs together, so that a page with thousands of runs stays usable
LEAST, MOST = 20, 1000  # of one run
LINES = 100  # of one group; a chart with more is unreadable


def chart_data(
    groups: Sequence[RunGroup], skews: Sequence[Skew | None], clients: Sequence[ClientCharts | None] = ()
) -> dict[str, Any]:
    """The data of the charts of these groups."""
    runs = sum(len(group.runs) for group in groups)
    points = min(MOST, max(LEAST, POINTS // max(runs, 1)))
    problems = [_group(group, skew, points) for group, skew in zip(groups, skews, strict=True)]
    for problem, charts in zip(problems, clients, strict=False):
        problem["clients"] = charts and charts.lines
    return {"problems": problems}


def drawn_labels(group: RunGroup) -> list[str]:
    """The labels that the charts show: all of them, or the LINES most accurate ones, in their usual order."""
    labels = list(group.methods)
    if len(labels) <= LINES:
        return labels
    spreads = {line.label: line.over_seeds("last_ten_accuracy") for line in group.lines}
    best = sorted(labels, key=lambda label: -math.inf if (pair := spreads.get(label)) is None else pair[0])[-LINES:]
    return sorted(best, key={label: place for place, label in enumerate(labels)}.__getitem__)


def _group(group: RunGroup, skew: Skew | None, points: int) -> dict[str, Any]:
    whole = {line.label: line.runs for line in group.lines}
    behind: dict[str, list[RunResult]] = {}
    for run in group.behind:
        behind.setdefault(run.run.label, []).append(run)
    looks = label_styles(group.methods)
    lines = [
        {
            "label": label,
            **asdict(looks[label]),
            "dash": looks[label].dash_name,
            "reference": is_reference(group.methods[label]),
            "runs": _runs(whole.get(label, ()), points),
            "behind": [each for run in behind.get(label, ()) for each in _runs([run], points)],
        }
        for label in drawn_labels(group)
    ]
    return {"target": group.target, "lines": lines, "skew": skew and asdict(skew)}


def _runs(runs: Sequence[RunResult], points: int) -> list[dict[str, Any]]:
    """The curves of runs up to the end of the shortest, thinned to `points` points.

    `between` has the indices of added extremes.
    """
    if not runs:
        return []
    even = set(thinned(min((run.records for run in runs), key=len), points))
    kept = sorted({*even, *extremes([run.records for run in runs], max(1, points // 40))})
    between = [place for place, at in enumerate(kept) if at not in even]
    return [{"seed": run.seed, "between": between, **_curves(run.records, kept)} for run in runs]


def _curves(records: Records, kept: Sequence[int]) -> dict[str, list[Any] | None]:
    """The values at these indices. Bytes, seconds and simulated time (null: not simulated) are cumulative."""
    sent = list(accumulate(map(add, column(records, "bytes_up"), column(records, "bytes_down"))))
    seconds = list(accumulate(column(records, "seconds")))
    times = list(accumulate(column(records, "simulated_time"))) if is_timed(records) else None
    curves = {name: column(records, field) for name, field in FIGURES.items()}
    return {
        "round": [at + 1 for at in kept],
        "bytes": [sent[at] for at in kept],
        "seconds": [round(seconds[at], 2) for at in kept],
        "time": times and [_digits(times[at]) for at in kept],
        **{name: [_digits(values[at]) for at in kept] for name, values in curves.items()},
    }


def thinned(records: Records, points: int) -> list[int]:
    """The indices of the records to draw: all, or evenly spaced ones, preferably evaluated rounds."""
    if len(records) <= points:
        return list(range(len(records)))
    evaluated = [i for i, accuracy in enumerate(column(records, "test_accuracy")) if accuracy is not None]
    among = evaluated or range(len(records))
    if len(among) <= points:
        return list(among)
    return [among[(number + 1) * len(among) // points - 1] for number in range(points)]


def extremes(runs: Sequence[Records], windows: int) -> list[int]:
    """The indices of the lowest and highest mean over the runs, for each metric in each of `windows` sections. They
    keep spikes between the evenly spaced points visible."""
    found: list[int] = []
    shortest = min(map(len, runs))
    with np.errstate(over="ignore"):
        for field in FIGURES.values():
            mean = np.mean([np.array(column(records, field)[:shortest], dtype=float) for records in runs], axis=0)
            known = np.flatnonzero(np.isfinite(mean))
            for part in np.array_split(known, windows) if len(known) else ():
                if len(part):
                    found += [int(part[mean[part].argmin()]), int(part[mean[part].argmax()])]
    return found


def _digits(value: float | None) -> float | None:
    """Round to six digits, more than the page shows."""
    return None if value is None else float(f"{value:.6g}")
