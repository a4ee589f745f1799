"""The charts of the clients' accuracies: the distribution by method, and by each client's size and label skew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmim.errors import UserError
from fedmim.experiments.client_labels import read_client_labels
from fedmim.experiments.per_client_file import ClientFacts, ClientLine, Values, read_client_facts, read_evaluations
from fedmim.results.grouping import RunGroup
from fedmim.results.loading import Warn
from fedmim.results.method_results import RunResult

QUANTILES = 101  # of the distribution of one method
CLIENT_POINTS = 20_000  # of all methods of a group together
MOST_POINTS = 500  # of one method
LOWEST = 5  # clients that are listed by name


@dataclass(frozen=True)
class ClientCharts:
    """The data of the charts of one group."""

    sentence: str
    personal: bool  # whether a run has personal models
    skewed: bool  # whether the label skew is known
    lines: dict[str, dict[str, Any]]  # by label: `quantiles` over all clients and seeds, `points` of the first seed
    lowest: dict[str, list[tuple[str, float]]]  # by label: names and accuracies of the worst clients of the first seed


@dataclass(frozen=True)
class EvaluatedRun:
    """The last evaluation of the clients of one run."""

    facts: ClientFacts
    last: ClientLine
    skew: np.ndarray | None  # of each client

    @classmethod
    def read(cls, run: RunResult) -> EvaluatedRun | None:
        """From its folder; None if its clients were not evaluated."""
        facts, last = read_client_facts(run.path), None
        for last in read_evaluations(run.path):  # noqa: B007  # only the last one is kept
            pass
        if facts is None or last is None:
            return None
        counts = read_client_labels(run.path)
        known = counts is not None and len(counts) == len(facts.sizes)
        return cls(facts, last, label_skew(counts) if known and counts is not None else None)


def client_charts(group: RunGroup, warn: Warn) -> ClientCharts | None:
    """The charts of a group; None if no run evaluated its clients. Damaged files cause a warning."""
    found: dict[str, list[EvaluatedRun]] = {}
    for line in group.lines:
        for run in line.runs:
            try:
                if (one := EvaluatedRun.read(run)) is not None:
                    found.setdefault(line.label, []).append(one)
            except UserError as error:
                warn(str(error))
    if not found:
        return None
    runs = [run for each in found.values() for run in each]
    most = min(MOST_POINTS, max(20, CLIENT_POINTS // len(found)))
    return ClientCharts(
        _sentence(runs),
        any(run.last.personal is not None for run in runs),
        any(run.skew is not None for run in runs),
        {label: {"quantiles": _quantiles(each), "points": _points(each[0], most)} for label, each in found.items()},
        {label: _lowest(each[0]) for label, each in found.items() if each[0].facts.names is not None},
    )


def label_skew(counts: np.ndarray) -> np.ndarray:
    """The distance of each client's class frequencies from those of all data: 0 (equal) to 1. `counts` is (N, C)."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    distance: np.ndarray = np.abs(shares - counts.sum(0) / max(counts.sum(), 1)).sum(1) / 2
    return distance


def _quantiles(runs: Sequence[EvaluatedRun]) -> dict[str, list[float] | None]:
    """Of the clients of all seeds; null if a seed has no values."""
    values: dict[str, list[Values | None]] = {
        "model": [run.last.model for run in runs],
        "personal": [run.last.personal for run in runs],
    }
    found: dict[str, list[float] | None] = {}
    for name, rows in values.items():
        known = [value for row in rows for value in row or () if value is not None]
        whole = known and all(row is not None for row in rows)
        found[name] = _short(np.quantile(known, np.linspace(0, 1, QUANTILES))) if whole else None
    return found


def _points(run: EvaluatedRun, most: int) -> dict[str, list[Any] | None]:
    """The clients with a value, at most `most`, evenly spaced by size."""
    facts, last = run.facts, run.last
    order = sorted((c for c, value in enumerate(last.model) if value is not None), key=lambda c: (facts.sizes[c], c))
    kept = order if len(order) <= most else [order[place * len(order) // most] for place in range(most)]
    return {
        "name": [facts.name(client) for client in kept],
        "size": [facts.sizes[client] for client in kept],
        "skew": None if run.skew is None else _short(run.skew[kept]),
        "model": [last.model[client] for client in kept],
        "personal": None if last.personal is None else [last.personal[client] for client in kept],
    }


def _lowest(run: EvaluatedRun) -> list[tuple[str, float]]:
    """The clients with the lowest values, lowest first."""
    known = [(value, client) for client, value in enumerate(run.last.model) if value is not None]
    return [(run.facts.name(client), value) for value, client in sorted(known)[:LOWEST]]


def _sentence(runs: Sequence[EvaluatedRun]) -> str:
    on_test = all(run.facts.evaluated_on == "test" for run in runs)
    data = "test data" if on_test else "training data, because the data set has no test data per client"
    rounds = sorted({run.last.round for run in runs})
    when = f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}"
    return f"The accuracy on each client's own {data}, at the last evaluation ({when})."


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
