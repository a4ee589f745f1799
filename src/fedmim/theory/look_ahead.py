"""Look-ahead on quadratics: stability, speed and noise of the leap in one direction.

In a direction with the response q, a round moves the clients' mean from z to z - q (z - x*). For a client with
curvature h, K local steps and the local learning rate A eta, q = 1 - (1 - A eta h)^K. With e = x - x*, inertia alpha
and a look-ahead of c increments, the error follows the linear recursion

    D_t = sum_j alpha_j (e_{t-j} - e_{t-j-1})
    e_{t+1} = (1 - q) e_t + (1 - q (1 + c)) D_t + q xi_t

xi_t is the sampling noise: the optimum of the round's clients minus that of all clients. docs/theory.md discusses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import solve_discrete_lyapunov  # type: ignore[import-untyped]
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

from fedmim.errors import UserError


def response(lr: float, curvature: float, steps: int, alpha: Sequence[float] = ()) -> float:
    """q, the part of the distance to the optimum that a round of local steps covers, for inertia alpha."""
    rate = lr * (1 - math.fsum(alpha)) * curvature
    return float(1 - (1 - rate) ** steps)


def convergence_factor(q: float, alpha: Sequence[float], ahead: float = 0.0) -> float:
    """The factor by which the error shrinks per round in the long run; at least 1 if the recursion is unstable."""
    return float(np.abs(np.linalg.eigvals(_recursion(q, alpha, ahead))).max())


def noise_gain(q: float, alpha: Sequence[float], ahead: float = 0.0) -> float:
    """The variance of the stationary error, relative to that of the noise; inf if the recursion is unstable."""
    matrix = _recursion(q, alpha, ahead)
    if np.abs(np.linalg.eigvals(matrix)).max() >= 1:
        return math.inf
    noise = np.zeros_like(matrix)
    noise[0, 0] = q * q
    return float(solve_discrete_lyapunov(matrix, noise)[0, 0])


def largest_ahead(q: float, alpha: Sequence[float], most: float = 1e3) -> float:
    """The largest look-ahead, up to `most`, below which the recursion is stable for this response."""
    if not 0 < q < 2:
        raise UserError(f"q: must be above 0 and below 2, got {q}")
    low, high = 0.0, most
    if convergence_factor(q, alpha, 0.0) >= 1:
        return 0.0
    while high - low > 1e-9 * most:
        middle = (low + high) / 2
        low, high = (middle, high) if convergence_factor(q, alpha, middle) < 1 else (low, middle)
    return low


def quietest_ahead(q: float, alpha: Sequence[float]) -> float:
    """The look-ahead, not below 0, with the smallest `noise_gain` for this response; 0 without inertia.

    For one weight and q up to 1 it is (1 + (1 - sqrt(q)) / alpha) / q - 1, where the noise gain is q / (2 - sqrt(q))^2.
    """
    edge = largest_ahead(q, alpha)
    if not math.fsum(alpha) or not edge:
        return 0.0
    found = minimize_scalar(
        lambda c: noise_gain(q, alpha, c), bounds=(0.0, edge), method="bounded", options={"xatol": 1e-7 * edge}
    )
    return float(found.x)


def _recursion(q: float, alpha: Sequence[float], ahead: float) -> np.ndarray:
    """The matrix of the recursion on (e_t, e_{t-1}, ..., e_{t-J})."""
    size = len(alpha) + 1
    matrix = np.eye(size, k=-1)
    matrix[0, 0] += 1 - q
    for j, weight in enumerate(alpha):
        matrix[0, j] += (1 - q * (1 + ahead)) * weight
        matrix[0, j + 1] -= (1 - q * (1 + ahead)) * weight
    return matrix
