"""The heterogeneity of the clients as a picture: clients by classes, ordered so that one glance shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmim.errors import UserError
from fedmim.experiments.client_labels import read_client_labels
from fedmim.results.grouping import RunGroup
from fedmim.results.loading import Warn

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


def skew_of(group: RunGroup, warn: Warn) -> Skew | None:
    """The skew of the first run that has one; of damaged ones there is a warning."""
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
    """Clients with the same largest class beside each other, the purest first; `counts` is (clients, classes)."""
    sizes = np.sum(counts, axis=1)
    shares = counts / np.maximum(sizes, 1)[:, None]  # (clients, classes)
    order = np.lexsort((-shares.max(1), shares.argmax(1)))
    if len(order) > CLIENTS:
        order = order[np.arange(CLIENTS) * len(order) // CLIENTS]
    low, high = sizes.min(), sizes.max()
    samples = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    sentence = (
        f"A client has {samples} samples and sees {(shares > 0).sum(1).mean():.1f} of the {shares.shape[1]} classes "
        f"on average; in the median client {100 * np.median(shares.max(1)):.0f}% of the samples are of one class."
    )
    return Skew(order.tolist(), shares[order].tolist(), sizes[order].tolist(), len(counts), seed, sentence)
