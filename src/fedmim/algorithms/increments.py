"""The last J increments of the global model, x_{t-j} - x_{t-j-1}, as server slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedmim.algorithms.base import Vectors

if TYPE_CHECKING:
    from torch import Tensor


def no_increments(count: int, params: Tensor) -> Vectors:
    """All zero, before the first round."""
    return {f"increment_{j}": params.new_zeros(params.shape) for j in range(count)}


def with_increment(slots: Vectors, count: int, newest: Tensor) -> Vectors:
    """The newest, and each of the others a place further back."""
    kept = {f"increment_{j}": slots[f"increment_{j - 1}"] for j in range(1, count)}
    return {**kept, "increment_0": newest} if count else {}


def weighted_sum(slots: Vectors, weights: Sequence[float]) -> Tensor | None:
    """sum_j weight_j (x_{t-j} - x_{t-j-1}); None where all weights are zero."""
    total: Tensor | None = None
    for j, weight in enumerate(weights):
        if weight and total is not None:
            total.add_(slots[f"increment_{j}"], alpha=weight)
        elif weight:
            total = weight * slots[f"increment_{j}"]
    return total
