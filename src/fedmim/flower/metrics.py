"""Means of the metrics that clients report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from flwr.app import MetricRecord, RecordDict

from fedmim.flower.messages import METRICS

MetricsFn: TypeAlias = Callable[[list[RecordDict], str], MetricRecord]
OURS = {"num-examples", "steps", "train_loss", "finite", "lacking"}  # these are not averaged as the user's own


def weighted_means(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
    """The weighted mean of each number that all replies have; numbers that are not finite are left out."""
    records = [reply.metric_records[METRICS] for reply in replies]
    shared = set.intersection(*(set(record) for record in records)) - OURS - {weighted_by} if records else set()
    means: dict[str, float] = {}
    for name in sorted(shared):
        pairs = [(record.get(weighted_by, 1.0), record[name]) for record in records]
        numbers = [(w, v) for w, v in pairs if isinstance(v, int | float) and isinstance(w, int | float)]
        finite = [(w, v) for w, v in numbers if math.isfinite(w) and math.isfinite(v) and w > 0]
        if finite:
            means[name] = sum(w * v for w, v in finite) / sum(w for w, _ in finite)
    return MetricRecord({**means})
