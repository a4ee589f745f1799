"""The auxiliary sequence u_t: the point that moves by plain gradients whatever the inertia (Lemma 5).

    u_t = x_t + (1/A) sum_{j=0}^{J-1} (sum_{s=j}^{J-1} alpha_s) (x_{t-j} - x_{t-j-1})
    u_{t+1} = u_t - (eta / S) sum_i sum_k g_{i,k}

The theorems speak of u_t. Without inertia it is x_t; with it, it is ahead of x_t along the last increments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import fsum
from typing import TYPE_CHECKING

from fedmim.theory.problem import Inertia

if TYPE_CHECKING:
    from torch import Tensor


def auxiliary_sequence(models: Sequence[Tensor], alpha: tuple[float, ...]) -> list[Tensor]:
    """u_0, ..., u_T from a run's global models x_0, ..., x_T, with x_t = x_0 before the start."""
    own = Inertia(alpha).A
    tails = [fsum(alpha[j:]) / own for j in range(len(alpha))]
    points = []
    for t, model in enumerate(models):
        u = model.clone()
        for j, weight in enumerate(tails[:t]):
            u += weight * (models[t - j] - models[t - j - 1])
        points.append(u)
    return points


def increments(models: Sequence[Tensor], steps: int) -> list[Tensor]:
    """delta_0, ..., delta_T: delta_t = -(x_t - x_{t-1}) / K, delta_0 = 0."""
    after = [(before - model) / steps for before, model in pairwise(models)]
    return [models[0].new_zeros(models[0].shape), *after]
