"""The last J increments of the global model, x_{t-j} - x_{t-j-1}, as server slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedmim.algorithms.base import Vectors

if TYPE_CHECKING:
    from torch import Tensor


def no_increments(count: int, params: Tensor) -> Vectors:
    """The slots before the first round: all zero."""
    return {f"increment_{j}": params.new_zeros(params.shape) for j in range(count)}


def with_increment(slots: Vectors, count: int, newest: Tensor) -> Vectors:
    """The slots after a round: the newest increment first, the others shifted by one."""
    kept = {f"increment_{j}": slots[f"increment_{j - 1}"] for j in range(1, count)}
    return {**kept, "increment_0": newest} if count else {}


def weighted_sum(slots: Vectors, weights: Sequence[float]) -> Tensor | None:
    """sum_j weight_j (x_{t-j} - x_{t-j-1}); None if all weights are zero."""
    total: Tensor | None = None
    for j, weight in enumerate(weights):
        if weight and total is not None:
            total.add_(slots[f"increment_{j}"], alpha=weight)
        elif weight:
            total = weight * slots[f"increment_{j}"]
    return total
