"""Quadratic clients, f_i(x) = 1/2 (x - b_i)' H_i (x - b_i): exact constants, and exact local training.

    L = max eig H_i,   mu = min eig H,   x* = (sum H_i)^-1 sum H_i b_i        (H the mean of the H_i)
    G^2 for a B:  mean ||g_i||^2 + p' (B^2 H^2 - mean H_i^2)^-1 p,   g_i = grad f_i(x*),  p = mean H_i g_i

The functions below the class compute the fixed point of each method, its convergence speed and its largest stable
learning rate, if all clients take part with K full-gradient steps per round. With R_i(r) = (I - r H_i)^K, FedAvg's
fixed point satisfies sum_i (I - R_i(eta)) (x - b_i) = 0. SCAFFOLD's is x*. FedMIM's is that of FedAvg at learning rate
A eta, because increments are zero at a fixed point. To first order it is x* + A eta (K-1)/2 H^-1 p, so FedMIM's bias is
A times FedAvg's. docs/theory.md discusses the speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedmim.errors import UserError
from fedmim.theory.constants import Inertia, ProblemConstants
from fedmim.theory.synthetic import SyntheticProblem


@dataclass(frozen=True)
class QuadraticProblem(SyntheticProblem):
    """Quadratic clients with curvatures H_i and optima b_i."""

    curvatures: Tensor  # (N, d, d)
    optima: Tensor  # (N, d)

    @classmethod
    def draw(
        cls,
        clients: int = 16,
        dimension: int = 4,
        spread: float = 1.0,
        sigma: float = 0.0,
        eigenvalues: tuple[float, float] = (0.5, 1.0),
        seed: int = 0,
    ) -> QuadraticProblem:
        """Random curvatures with eigenvalues in a closed range; `spread` scales the clients' optima."""
        generator = torch.Generator().manual_seed(seed)
        factor = torch.randn(clients, dimension, dimension, generator=generator, dtype=torch.float64)
        basis = torch.linalg.qr(factor).Q
        low, high = eigenvalues
        values = low + (high - low) * torch.rand(clients, 1, dimension, generator=generator, dtype=torch.float64)
        values[0, 0, 0] = high
        optima = spread * torch.randn(clients, dimension, generator=generator, dtype=torch.float64)
        start = torch.full((dimension,), 2.0, dtype=torch.float64)
        return cls(start, sigma, basis * values @ basis.mT, optima)

    def with_spread(self, factor: float) -> QuadraticProblem:
        """The same curvatures and x*, with every client's gradient at x*, and so G, multiplied by a factor."""
        return replace(self, optima=self.optimum + factor * (self.optima - self.optimum))

    @cached_property
    def smoothness(self) -> float:
        """L, the largest eigenvalue over clients."""
        return float(torch.linalg.eigvalsh(self.curvatures).abs().max())

    @cached_property
    def mu(self) -> float:
        """The PL constant of f: the smallest eigenvalue of the mean curvature."""
        return float(torch.linalg.eigvalsh(self.curvature).min())

    @cached_property
    def curvature(self) -> Tensor:
        """H, the curvature of f, (d, d)."""
        return self.curvatures.mean(0)

    @cached_property
    def optimum(self) -> Tensor:
        """x* (d,)."""
        pulls = torch.einsum("nij,nj->i", self.curvatures, self.optima) / self.clients
        point: Tensor = torch.linalg.solve(self.curvature, pulls)
        return point

    @cached_property
    def lowest(self) -> float:
        """f*."""
        return float(self.value(self.optimum))

    @cached_property
    def at_optimum(self) -> Tensor:
        """g_i = grad f_i(x*), (N, d); their mean is 0."""
        return self.gradients(self.optimum.expand(self.clients, -1))

    @cached_property
    def drift(self) -> Tensor:
        """p = mean H_i g_i, the direction of the bias of local training."""
        return torch.einsum("nij,nj->i", self.curvatures, self.at_optimum) / self.clients

    @property
    def least_b(self) -> float:
        """The infimum of B for which G exists: the square root of the largest eigenvalue of H^-2 mean H_i^2."""
        ratio = torch.linalg.solve(self.curvature @ self.curvature, self._mean_square)
        return math.sqrt(float(torch.linalg.eigvals(ratio).real.max()))

    def heterogeneity(self, b: float) -> float:
        """The smallest G for a B."""
        margin = b**2 * self.curvature @ self.curvature - self._mean_square
        if torch.linalg.eigvalsh(margin).min() <= 0:
            raise UserError(f"B: must be above {self.least_b:.4g} for these quadratics, got {b}")
        spread = self.at_optimum.square().sum(1).mean()
        return float((spread + self.drift @ torch.linalg.solve(margin, self.drift)) ** 0.5)

    def constants(self, b: float | None = None, c: float | None = None) -> ProblemConstants:
        """The exact constants of the theorems; default: B is 1.1 times the smallest."""
        return replace(super().constants(1.1 * self.least_b if b is None else b, c), mu=self.mu)

    def values(self, points: Tensor) -> Tensor:
        """f_i at points shared by all clients."""
        apart = points.unsqueeze(-2) - self.optima
        return 0.5 * (apart * torch.einsum("nij,...nj->...ni", self.curvatures, apart)).sum(-1)

    def gradients(self, points: Tensor, clients: Sequence[int] | None = None) -> Tensor:
        """Grad f_i, each client at its own point."""
        which = slice(None) if clients is None else list(clients)
        return torch.einsum("nij,...nj->...ni", self.curvatures[which], points - self.optima[which])

    @property
    def _mean_square(self) -> Tensor:
        """mean H_i^2, (d, d)."""
        return (self.curvatures @ self.curvatures).mean(0)

    def _rows(self) -> Tensor:
        columns = torch.stack([self.optima, torch.zeros_like(self.optima)], dim=-1)
        return torch.cat([self.curvatures, columns], dim=-1)

    @staticmethod
    def _sample_losses(w: Tensor, x: Tensor) -> Tensor:
        apart = w - x[..., -2]
        bent = torch.einsum("nij,nj->ni", x[..., :-2], apart)
        return (0.5 * apart * bent + x[..., -1] * w).sum(-1)


def resting_point(problem: QuadraticProblem, own_lr: float, steps: int) -> Tensor:
    """The fixed point of local training; `own_lr` is eta for FedAvg, and A eta with inertia."""
    pulls = _identity(problem) - _decay(problem, own_lr, steps)  # (N, d, d)
    point: Tensor = torch.linalg.solve(pulls.sum(0), torch.einsum("nij,nj->i", pulls, problem.optima))
    return point


def bias(problem: QuadraticProblem, inertia: Inertia, lr: float, steps: int) -> float:
    """||x - x*|| at the fixed point."""
    return float((resting_point(problem, inertia.A * lr, steps) - problem.optimum).norm())


def first_order_bias(problem: QuadraticProblem, inertia: Inertia, lr: float, steps: int) -> float:
    """A eta (K-1)/2 ||H^-1 mean_i H_i g_i||, the limit of the bias at small learning rates."""
    direction = torch.linalg.solve(problem.curvature, problem.drift)
    return inertia.A * lr * (steps - 1) / 2 * float(direction.norm())


def contraction(problem: QuadraticProblem, inertia: Inertia, lr: float, steps: int) -> float:
    """The asymptotic factor per round of the distance to the fixed point; above 1 the method diverges."""
    return _spectral_radius(round_matrix(problem, inertia, lr, steps))


def round_matrix(problem: QuadraticProblem, inertia: Inertia, lr: float, steps: int) -> Tensor:
    """The linear map of a round on (x_t, x_{t-1}, ..., x_{t-J}) minus the fixed point; ((J+1) d, (J+1) d).

    x_{t+1} = R x_t + (I - R) m2 - W m1 + const,   R = mean R_i,   W = mean sum_{k<K} (I - A eta H_i)^k
    """
    own, memory = inertia.A * lr, inertia.J
    r = _decay(problem, own, steps).mean(0)
    w = _sum_of_decays(problem, own, steps).mean(0)
    d = len(r)
    matrix = r.new_zeros((memory + 1) * d, (memory + 1) * d)
    matrix[:d, :d] = r
    for weights, factor in ((inertia.alpha, w / steps), (inertia.beta, -(_identity(problem) - r) / steps)):
        for j, weight in enumerate(weights):  # weight of x_{t-j} - x_{t-j-1}
            matrix[:d, j * d : (j + 1) * d] += weight * factor
            matrix[:d, (j + 1) * d : (j + 2) * d] -= weight * factor
    matrix[d:, :-d] = torch.eye(memory * d, dtype=r.dtype)
    return matrix


def scaffold_contraction(problem: QuadraticProblem, lr: float, steps: int) -> float:
    """As `contraction`, for SCAFFOLD with the state (x, c_1, ..., c_N)."""
    n, d = problem.optima.shape
    eye = _identity(problem)
    # x_i = R_i x + eta W_i (c_i - c),  c_i+ = c_i - c + (x - x_i) / (K eta),  x+ = mean x_i
    centred = torch.eye(n, dtype=eye.dtype) - 1 / n
    local, controls = (torch.zeros(n, d, (n + 1) * d, dtype=eye.dtype) for _ in range(2))
    local[:, :, :d] = _decay(problem, lr, steps)
    w = _sum_of_decays(problem, lr, steps)
    local[:, :, d:] = torch.einsum("nij,nm->nimj", lr * w, centred).reshape(n, d, n * d)
    controls[:, :, d:] = torch.einsum("ij,nm->nimj", eye, centred).reshape(n, d, n * d)
    controls[:, :, :d] += eye / (steps * lr)
    controls -= local / (steps * lr)
    return _spectral_radius(torch.cat([local.mean(0), controls.reshape(n * d, -1)]))


def largest_stable_lr(problem: QuadraticProblem, inertia: Inertia, steps: int) -> float:
    """The largest learning rate at which rounds contract; the theorem allows much less."""
    high = 1e-3 / (problem.smoothness * steps)
    while contraction(problem, inertia, high * 1.1, steps) < 1:
        high *= 1.1
    low, high = high, high * 1.1
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if contraction(problem, inertia, middle, steps) < 1 else (low, middle)
    return low


def _identity(problem: QuadraticProblem) -> Tensor:
    return torch.eye(problem.optima.shape[1], dtype=problem.optima.dtype)


def _decay(problem: QuadraticProblem, lr: float, steps: int) -> Tensor:
    """R_i = (I - lr H_i)^K, (N, d, d)."""
    power: Tensor = torch.linalg.matrix_power(_identity(problem) - lr * problem.curvatures, steps)
    return power


def _sum_of_decays(problem: QuadraticProblem, lr: float, steps: int) -> Tensor:
    """sum_{k<K} (I - lr H_i)^k, (N, d, d)."""
    return sum((_decay(problem, lr, k) for k in range(steps)), start=torch.zeros_like(problem.curvatures))


def _spectral_radius(matrix: Tensor) -> float:
    return float(torch.linalg.eigvals(matrix).abs().max())
