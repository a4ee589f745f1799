"""The heterogeneity of the clients as a heatmap of clients and classes, ordered by the largest class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmim.errors import UserError
from fedmim.experiments.client_labels import read_client_labels
from fedmim.results.grouping import RunGroup
from fedmim.results.loading import Warn

CLIENTS = 200  # at most this many are shown


@dataclass(frozen=True)
class Skew:
    """The share of each class in the samples of each client."""

    clients: list[int]  # ids, in the order of the heatmap
    shares: list[list[float]]  # (clients, classes), rows sum to 1
    sizes: list[int]  # samples of each of these clients
    total: int  # number of all clients
    seed: int
    sentence: str


def skew_of(group: RunGroup, warn: Warn) -> Skew | None:
    """The skew of the first run that has one. Damaged files cause a warning."""
    for line in group.lines:
        for run in line.runs:
            try:
                counts = read_client_labels(run.path)
            except UserError as error:
                warn(str(error))
            else:
                if counts is not None:
                    return arrange(counts, run.seed)
    return None


def arrange(counts: np.ndarray, seed: int) -> Skew:
    """Order clients by their largest class, most skewed first. `counts` has shape (clients, classes)."""
    sizes = np.sum(counts, axis=1)
    shares = counts / np.maximum(sizes, 1)[:, None]  # (clients, classes)
    order = np.lexsort((-shares.max(1), shares.argmax(1)))
    if len(order) > CLIENTS:
        order = order[np.arange(CLIENTS) * len(order) // CLIENTS]
    low, high = sizes.min(), sizes.max()
    samples = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    sentence = (
        f"Each client has {samples} samples, from {(shares > 0).sum(1).mean():.1f} of the {shares.shape[1]} classes "
        f"on average. In the median client, {100 * np.median(shares.max(1)):.0f}% of the samples belong to one class."
    )
    return Skew(order.tolist(), shares[order].tolist(), sizes[order].tolist(), len(counts), seed, sentence)
