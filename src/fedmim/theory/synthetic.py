"""Synthetic problems with exactly known constants, as tasks for the simulator, and a non-convex problem.

Each client has one sample, a row of numbers that defines its f_i. The model is the vector w, and the loss is
f_i(w) + <xi, w>, with new normal noise xi in every step, so that E||g - grad f_i||^2 is exactly sigma^2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from fedmim.simulation.task import Task
from fedmim.theory.constants import ProblemConstants

GRID_STEP = 1e-3
GRID_MARGIN = 12.0  # distance from the valleys at which phi' is below 6e-4
STEEPEST = 27**0.5 / 16  # max phi', at 1 / sqrt(3)


@dataclass(frozen=True)
class SyntheticProblem(ABC):
    """f = (1/N) sum_i f_i over R^d, in float64."""

    start: Tensor  # x_0, (d,)
    sigma: float  # noise of a gradient

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L, the smallest value that holds for all clients."""

    @property
    @abstractmethod
    def lowest(self) -> float:
        """f*, or a lower bound of it."""

    @abstractmethod
    def heterogeneity(self, b: float) -> float:
        """The smallest G (or an upper bound) with (1/N) sum ||grad f_i||^2 <= G^2 + B^2 ||grad f||^2 everywhere."""

    @abstractmethod
    def values(self, points: Tensor) -> Tensor:
        """f_i at points (..., d) shared by all clients: (..., N)."""

    @abstractmethod
    def gradients(self, points: Tensor, clients: Sequence[int] | None = None) -> Tensor:
        """grad f_i, each client at its own point (..., S, d): (..., S, d)."""

    @abstractmethod
    def _rows(self) -> Tensor:
        """The samples of the clients, (N, d, .); the last column is for the noise."""

    @staticmethod
    @abstractmethod
    def _sample_losses(w: Tensor, x: Tensor) -> Tensor:
        """f_i(w) + <xi, w> for each sample."""

    @cached_property
    def clients(self) -> int:
        """N."""
        return len(self._rows())

    def value(self, x: Tensor) -> Tensor:
        """f at points (..., d)."""
        return self.values(x).mean(-1)

    def gradient(self, x: Tensor) -> Tensor:
        """Grad f at points (..., d)."""
        shared = x.unsqueeze(-2).expand(*x.shape[:-1], self.clients, x.shape[-1])
        return self.gradients(shared).mean(-2)

    def squared_gradient(self, x: Tensor) -> Tensor:
        """||grad f||^2 at points (..., d)."""
        return self.gradient(x).square().sum(-1)

    def constants(self, b: float = 1.0, c: float | None = None) -> ProblemConstants:
        """The exact constants of the theorems, for a choice of B."""
        gap = float(self.value(self.start)) - self.lowest
        return ProblemConstants(self.smoothness, self.sigma, self.heterogeneity(b), b, gap, c)

    def task(self) -> Task:
        """The task for `fedmim.rounds`; train with full batches, without weight decay or clipping."""
        rows, target = self._rows(), torch.zeros(1)
        return Task(
            model=SampleLossModel(self.start, self._sample_losses),
            clients=[(row.unsqueeze(0), target) for row in rows],
            test=(rows[:1], target),
            loss=lambda outputs, targets: outputs.mean(),
            augment=partial(add_gradient_noise, sigma=self.sigma) if self.sigma else None,
        )


class SampleLossModel(nn.Module):
    """A model with parameters w that returns the loss of each sample."""

    def __init__(self, start: Tensor, losses: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())
        self.losses = losses

    def forward(self, x: Tensor) -> Tensor:
        """The loss of each sample."""
        return self.losses(self.w, x)


def add_gradient_noise(x: Tensor, generator: torch.Generator, sigma: float) -> Tensor:
    """The sample with new noise of mean squared norm sigma^2 in the last column."""
    xi = torch.randn(x.shape[:-1], generator=generator, dtype=x.dtype)
    return torch.cat([x[..., :-1], sigma * x.shape[-2] ** -0.5 * xi.unsqueeze(-1)], dim=-1)


@dataclass(frozen=True)
class NonConvexProblem(SyntheticProblem):
    """A non-convex problem: each client has one valley per coordinate, with height h_i and centre c_i.

        f_i(x) = sum_n h_{i,n} phi(x_n - c_{i,n}),    phi(r) = r^2 / (2 (1 + r^2))        (Geman and McClure's loss)

    phi'' is between -1/4 and 1, so L = max h. Gradients are bounded, and f is a sum over coordinates, so f* and the
    smallest G for a B are found by a grid search along each coordinate, with a margin for the grid.
    """

    heights: Tensor  # (N, d)
    centres: Tensor  # (N, d)

    @classmethod
    def draw(
        cls, clients: int = 16, dimension: int = 4, spread: float = 1.0, sigma: float = 0.0, seed: int = 0
    ) -> NonConvexProblem:
        """Random valleys; `spread` scales how much the clients' centres and heights differ. At 0 all are equal."""
        generator = torch.Generator().manual_seed(seed)
        depths = torch.rand(clients, dimension, generator=generator, dtype=torch.float64)
        heights = 1 - 0.5 * min(spread, 1.0) * depths
        centres = spread * torch.randn(clients, dimension, generator=generator, dtype=torch.float64)
        start = torch.full((dimension,), 1.0, dtype=torch.float64)
        return cls(start, sigma, heights, centres)

    @property
    def smoothness(self) -> float:
        """L = max h."""
        return float(self.heights.max())

    @property
    def lowest(self) -> float:
        """A lower bound of f*, within L d step^2 / 8: the grid has a point within half a step of the minimum."""
        return float(self._lines[0].min(0).values.sum()) - self.smoothness * self.start.numel() * GRID_STEP**2 / 8

    def heterogeneity(self, b: float) -> float:
        """The smallest G for a B, with a margin for the grid; outside the grid all gradients are close to 0."""
        _, slope, square = self._lines
        steepest = (1 + b**2) * 2 * self.smoothness**2 * STEEPEST  # the largest slope of the difference
        margin = self.start.numel() * steepest * GRID_STEP / 2
        return float(((square - b**2 * slope**2).max(0).values.clamp(min=0).sum() + margin) ** 0.5)

    def values(self, points: Tensor) -> Tensor:
        """f_i at points shared by all clients."""
        return (self.heights * _phi(points.unsqueeze(-2) - self.centres)).sum(-1)

    def gradients(self, points: Tensor, clients: Sequence[int] | None = None) -> Tensor:
        """Grad f_i, each client at its own point."""
        which = slice(None) if clients is None else list(clients)
        return self.heights[which] * _slope(points - self.centres[which])

    @cached_property
    def _lines(self) -> tuple[Tensor, Tensor, Tensor]:
        """On the grid of each coordinate (M, d): the means of f_i, grad f_i and its square."""
        low, high = float(self.centres.min()) - GRID_MARGIN, float(self.centres.max()) + GRID_MARGIN
        grid = torch.arange(low, high + GRID_STEP, GRID_STEP, dtype=torch.float64)
        value, slope, square = (torch.zeros(len(grid), self.start.numel(), dtype=torch.float64) for _ in range(3))
        for height, centre in zip(self.heights, self.centres, strict=True):
            apart = grid.unsqueeze(1) - centre
            own = height * _slope(apart)
            value += height * _phi(apart)
            slope += own
            square += own**2
        return value / self.clients, slope / self.clients, square / self.clients

    def _rows(self) -> Tensor:
        return torch.stack([self.heights, self.centres, torch.zeros_like(self.centres)], dim=-1)

    @staticmethod
    def _sample_losses(w: Tensor, x: Tensor) -> Tensor:
        return (x[..., 0] * _phi(w - x[..., 1]) + x[..., 2] * w).sum(-1)


def _phi(r: Tensor) -> Tensor:
    return r**2 / (2 * (1 + r**2))


def _slope(r: Tensor) -> Tensor:
    return r / (1 + r**2) ** 2
