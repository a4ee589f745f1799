"""Robust aggregation: bounds on the distance of uploads, and the coordinate-wise trimmed mean and median.

Yin et al. 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", Definitions 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedmim.algorithms import Vectors
from fedmim.memory import check_memory
from fedmim.simulation.ledger import vector_bytes
from fedmim.simulation.mean import chunks
from fedmim.simulation.settings import Settings
from fedmim.simulation.training import Reply


@dataclass(frozen=True)
class HeldReply:
    """A reply that waits for the others of its round."""

    reply: Reply
    weight: float
    distance: float  # from its public point

    @classmethod
    def of(cls, reply: Reply, weight: float, distance: float) -> HeldReply:
        """With copies of the vectors; those of a reply are valid until the next one arrives."""
        upload, slots = copies(reply.upload), copies(reply.slots)
        return cls(replace(reply, upload=upload, slots=slots, buffers=reply.buffers.clone()), weight, distance)


def copies(vectors: Vectors) -> Vectors:
    """A copy of each vector."""
    return {name: vector.clone() for name, vector in vectors.items()}


def check_uploads(settings: Settings, clients: int, params: Tensor) -> None:
    """Reject settings that hold more uploads at once than fit in memory."""
    if settings.holds_uploads:
        name = "max_distance_ratio" if settings.aggregation == "mean" else "aggregation"
        active = settings.active(clients)
        check_memory(
            active * vector_bytes({"params": params}), f"{name}: holding {active:,} uploads", "lower participation"
        )


def largest_distance(distances: Sequence[float], ratio: float) -> float:
    """ratio times the median distance: of an even number, the smaller of the two in the middle.

    It is a finite number if at most half of the uploads are attacks, however far away these are.
    """
    return min(ratio * sorted(distances)[(len(distances) - 1) // 2], math.nextafter(math.inf, 0))


def cut(settings: Settings, replies: int) -> int:
    """How many of the smallest and of the largest values each coordinate drops: all but the middle for the median."""
    if settings.aggregation == "median":
        return (replies - 1) // 2
    return int(settings.trim * replies + 1e-9)  # 0.29 * 100 is 28.999999999999996


def trimmed_mean(uploads: Sequence[Vectors], cut: int) -> Vectors:
    """For each coordinate, the mean over the uploads without the `cut` smallest and the `cut` largest values."""
    return {name: _trimmed_mean([upload[name] for upload in uploads], cut) for name in uploads[0]}


def _trimmed_mean(vectors: Sequence[Tensor], cut: int) -> Tensor:
    mean = torch.empty_like(vectors[0])
    for part in chunks(mean):
        rows = torch.stack([vector[part] for vector in vectors]).sort(dim=0).values  # (S, chunk)
        mean[part] = rows[cut : len(vectors) - cut].double().mean(dim=0)
    return mean
