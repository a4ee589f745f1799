"""The heterogeneity of the clients as a picture: clients by classes, ordered so that one glance shows it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from fedmim.experiments.client_labels import read_client_labels
from fedmim.results.grouping import RunGroup

CLIENTS = 200  # more than these are thinned out


@dataclass(frozen=True)
class Skew:
    """What share of its samples each client has of each class."""

    clients: list[int]  # ids, in the order of the picture
    shares: list[list[float]]  # (clients, classes), rows sum to 1
    sizes: list[int]  # samples of each of these clients
    total: int  # how many clients there are
    seed: int
    sentence: str


def skew_of(group: RunGroup) -> Skew | None:
    """The skew of the first run that has one."""
    for line in group.lines:
        for run in line.runs:
            if counts := read_client_labels(run.path):
                return arrange(counts, run.seed)
    return None


def arrange(counts: list[list[int]], seed: int) -> Skew:
    """Clients with the same largest class beside each other, the purest first."""
    sizes = [sum(row) for row in counts]
    shares = [[count / (size or 1) for count in row] for row, size in zip(counts, sizes, strict=True)]
    order = sorted(range(len(counts)), key=lambda i: (_largest(shares[i]), -max(shares[i]), i))
    if len(order) > CLIENTS:
        order = [order[number * len(order) // CLIENTS] for number in range(CLIENTS)]
    return Skew(
        clients=order,
        shares=[shares[i] for i in order],
        sizes=[sizes[i] for i in order],
        total=len(counts),
        seed=seed,
        sentence=_sentence(shares, sizes),
    )


def _largest(shares: list[float]) -> int:
    return max(range(len(shares)), key=shares.__getitem__)


def _sentence(shares: list[list[float]], sizes: list[int]) -> str:
    """The skew in two figures."""
    held = statistics.fmean(sum(share > 0 for share in row) for row in shares)
    top = statistics.median(max(row) for row in shares)
    low, high = min(sizes), max(sizes)
    samples = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return (
        f"A client has {samples} samples and sees {held:.1f} of the {len(shares[0])} classes on average; "
        f"in the median client {100 * top:.0f}% of the samples are of one class."
    )
