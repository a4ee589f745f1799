"""Local training on quadratics, exactly: where each method comes to rest, how fast, and up to which rate.

All clients take part, K full-gradient steps a round, rate eta. With R_i(r) = (I - r H_i)^K:

    FedAvg     rests where sum_i (I - R_i(eta)) (x - b_i) = 0
    FedMIM     rests where FedAvg does at the rate A eta: at rest there are no increments, so neither alpha nor beta
               matter but through A
    SCAFFOLD   rests at x*

To first order in the rate, a method whose own step has the rate r rests at x* + r (K-1)/2 H^-1 mean_i(H_i g_i), with
g_i = grad f_i(x*): FedMIM's bias is A times FedAvg's. Meanwhile u_t moves by eta times the plain gradients for every
A (Lemma 5): at a small common rate FedMIM is as fast with A times the bias, at eta / A it is 1/A times as fast with
the same bias. That ends where a round's progress eta K h passes about A / 4: beyond, inertia swings, and its memory of
about 1/A rounds sets the pace.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedmim.theory.problem import Inertia
from fedmim.theory.quadratics import Quadratics


def resting_point(quadratics: Quadratics, own_rate: float, steps: int) -> Tensor:
    """Where local training with steps of this rate stands still: eta for FedAvg, A eta with inertia."""
    pulls = _identity(quadratics) - _decay(quadratics, own_rate, steps)  # (N, d, d)
    point: Tensor = torch.linalg.solve(pulls.sum(0), torch.einsum("nij,nj->i", pulls, quadratics.optima))
    return point


def bias(quadratics: Quadratics, inertia: Inertia, lr: float, steps: int) -> float:
    """||x - x*|| at rest."""
    return float((resting_point(quadratics, inertia.A * lr, steps) - quadratics.optimum).norm())


def first_order_bias(quadratics: Quadratics, inertia: Inertia, lr: float, steps: int) -> float:
    """A eta (K-1)/2 ||H^-1 mean_i H_i g_i||, to which the bias tends at small rates."""
    direction = torch.linalg.solve(quadratics.curvature, quadratics.drift)
    return inertia.A * lr * (steps - 1) / 2 * float(direction.norm())


def contraction(quadratics: Quadratics, inertia: Inertia, lr: float, steps: int) -> float:
    """By which factor a round shrinks the distance to the resting point in the long run; above 1 it diverges."""
    return _spectral_radius(round_matrix(quadratics, inertia, lr, steps))


def round_matrix(quadratics: Quadratics, inertia: Inertia, lr: float, steps: int) -> Tensor:
    """The linear map of a round on (x_t, x_{t-1}, ..., x_{t-J}), less the resting point; ((J+1) d, (J+1) d).

    x_{t+1} = R x_t + (I - R) m2 - W m1 + const,   R = mean R_i,   W = mean sum_{k<K} (I - A eta H_i)^k
    """
    own = inertia.A * lr
    single = _identity(quadratics) - own * quadratics.curvatures
    r = _decay(quadratics, own, steps).mean(0)
    w = sum((torch.linalg.matrix_power(single, k) for k in range(steps)), start=torch.zeros_like(single)).mean(0)
    d, memory = len(r), inertia.J
    matrix = r.new_zeros((memory + 1) * d, (memory + 1) * d)
    matrix[:d, :d] = r
    for weights, factor in ((inertia.alpha, w / steps), (inertia.beta, -(_identity(quadratics) - r) / steps)):
        for j, weight in enumerate(weights):  # of x_{t-j} - x_{t-j-1}
            matrix[:d, j * d : (j + 1) * d] += weight * factor
            matrix[:d, (j + 1) * d : (j + 2) * d] -= weight * factor
    matrix[d:, :-d] = torch.eye(memory * d, dtype=r.dtype) if memory else matrix[d:, :-d]
    return matrix


def scaffold_contraction(quadratics: Quadratics, lr: float, steps: int) -> float:
    """The same factor for SCAFFOLD, whose state is (x, c_1, ..., c_N)."""
    n, d = quadratics.optima.shape
    eye = _identity(quadratics)
    r = _decay(quadratics, lr, steps)
    single = eye - lr * quadratics.curvatures
    w = sum((torch.linalg.matrix_power(single, k) for k in range(steps)), start=torch.zeros_like(single))
    # x_i = R_i x + eta W_i (c_i - c),  c_i+ = c_i - c + (x - x_i) / (K eta),  x+ = mean x_i
    local = torch.zeros(n, d, (n + 1) * d, dtype=eye.dtype)
    local[:, :, :d] = r
    centred = torch.eye(n, dtype=eye.dtype) - 1 / n
    local[:, :, d:] = torch.einsum("nij,nm->nimj", lr * w, centred).reshape(n, d, n * d)
    controls = torch.zeros(n, d, (n + 1) * d, dtype=eye.dtype)
    controls[:, :, d:] = torch.einsum("ij,nm->nimj", eye, centred).reshape(n, d, n * d)
    controls[:, :, :d] += eye / (steps * lr)
    controls -= local / (steps * lr)
    return _spectral_radius(torch.cat([local.mean(0), controls.reshape(n * d, -1)]))


def largest_stable_rate(quadratics: Quadratics, inertia: Inertia, steps: int) -> float:
    """The rate up to which rounds contract: what quadratics tolerate, against what the theorem admits."""
    high = 1e-3 / (quadratics.smoothness * steps)
    while contraction(quadratics, inertia, high * 1.1, steps) < 1:
        high *= 1.1
    low, high = high, high * 1.1
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if contraction(quadratics, inertia, middle, steps) < 1 else (low, middle)
    return low


def _identity(quadratics: Quadratics) -> Tensor:
    return torch.eye(quadratics.optima.shape[1], dtype=quadratics.optima.dtype)


def _decay(quadratics: Quadratics, rate: float, steps: int) -> Tensor:
    """R_i = (I - rate H_i)^K, (N, d, d)."""
    power: Tensor = torch.linalg.matrix_power(_identity(quadratics) - rate * quadratics.curvatures, steps)
    return power


def _spectral_radius(matrix: Tensor) -> float:
    return float(torch.linalg.eigvals(matrix).abs().max())
