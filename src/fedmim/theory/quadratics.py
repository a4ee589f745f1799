"""Quadratic clients, f_i(x) = 1/2 (x - b_i)' H_i (x - b_i): all constants of the theorems in closed form.

L = max eig H_i,   mu = min eig H,   x* = (sum H_i)^-1 sum H_i b_i        (H the mean of the H_i)
G^2 for a B:  mean ||g_i||^2 + p' (B^2 H^2 - mean H_i^2)^-1 p,   g_i = grad f_i(x*),  p = mean H_i g_i
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from fedmim.errors import UserError
from fedmim.theory.problem import Problem
from fedmim.theory.synthetic import Synthetic


@dataclass(frozen=True)
class Quadratics(Synthetic):
    """Clients with curvature H_i and optimum b_i of their own."""

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
    ) -> Quadratics:
        """Random curvatures with eigenvalues in a range, the ends included; `spread` scales the clients' optima."""
        generator = torch.Generator().manual_seed(seed)
        factor = torch.randn(clients, dimension, dimension, generator=generator, dtype=torch.float64)
        basis = torch.linalg.qr(factor).Q
        low, high = eigenvalues
        values = low + (high - low) * torch.rand(clients, 1, dimension, generator=generator, dtype=torch.float64)
        values[0, 0, 0] = high
        optima = spread * torch.randn(clients, dimension, generator=generator, dtype=torch.float64)
        start = torch.full((dimension,), 2.0, dtype=torch.float64)
        return cls(start, sigma, basis * values @ basis.mT, optima)

    def with_spread(self, factor: float) -> Quadratics:
        """The same curvatures and x*, with every client's gradient at x* times a factor, and so G too."""
        return replace(self, optima=self.optimum + factor * (self.optima - self.optimum))

    @property
    def clients(self) -> int:
        """N."""
        return len(self.curvatures)

    @cached_property
    def smoothness(self) -> float:
        """L, the largest eigenvalue of all clients."""
        return float(torch.linalg.eigvalsh(self.curvatures).abs().max())

    @cached_property
    def mu(self) -> float:
        """The least eigenvalue of the mean curvature, f's PL constant."""
        return float(torch.linalg.eigvalsh(self.curvature).min())

    @cached_property
    def curvature(self) -> Tensor:
        """H, of f, (d, d)."""
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
        """p = mean H_i g_i, the direction into which local training is biased."""
        return torch.einsum("nij,nj->i", self.curvatures, self.at_optimum) / self.clients

    @property
    def least_b(self) -> float:
        """The infimum of the B for which some G exists: the root of the largest eigenvalue of H^-2 mean H_i^2."""
        squares = (self.curvatures @ self.curvatures).mean(0)
        ratio = torch.linalg.solve(self.curvature @ self.curvature, squares)
        return math.sqrt(float(torch.linalg.eigvals(ratio).real.max()))

    def heterogeneity(self, b: float) -> float:
        """The least G for a B."""
        squares = (self.curvatures @ self.curvatures).mean(0)
        room = b**2 * self.curvature @ self.curvature - squares
        if torch.linalg.eigvalsh(room).min() <= 0:
            raise UserError(f"B: must be above {self.least_b:.4g} for these quadratics, got {b}")
        spread = self.at_optimum.square().sum(1).mean()
        return float((spread + self.drift @ torch.linalg.solve(room, self.drift)) ** 0.5)

    def problem(self, b: float | None = None, c: float | None = None, mu: float | None = None) -> Problem:
        """The constants of the theorems, exact; B is a tenth above the least unless given, mu is f's."""
        return super().problem(1.1 * self.least_b if b is None else b, c, mu or self.mu)

    def values(self, points: Tensor) -> Tensor:
        """f_i at points that all clients share."""
        apart = points.unsqueeze(-2) - self.optima
        return 0.5 * (apart * torch.einsum("nij,...nj->...ni", self.curvatures, apart)).sum(-1)

    def gradients(self, points: Tensor, clients: Sequence[int] | None = None) -> Tensor:
        """Grad f_i at a point for each client."""
        which = slice(None) if clients is None else list(clients)
        return torch.einsum("nij,...nj->...ni", self.curvatures[which], points - self.optima[which])

    def _rows(self) -> Tensor:
        columns = torch.stack([self.optima, torch.zeros_like(self.optima)], dim=-1)
        return torch.cat([self.curvatures, columns], dim=-1)

    def _module(self) -> nn.Module:
        return QuadraticModel(self.start)


class QuadraticModel(nn.Module):
    """The value at w of samples (H, b, xi), packed as (d, d + 2)."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        """One value for each sample."""
        apart = self.w - x[..., -2]
        bent = torch.einsum("nij,nj->ni", x[..., :-2], apart)
        return (0.5 * apart * bent + x[..., -1] * self.w).sum(-1)
