"""Synthetic problems whose constants are known exactly, as tasks for the simulator, and a non-convex one.

Each client has one sample, a row of numbers that defines its f_i. The model is the vector w, and the loss is
f_i(w) + <xi, w>, with fresh normal noise xi at every step, so that E||g - grad f_i||^2 is exactly sigma^2.
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
GRID_MARGIN = 12.0  # beyond the valleys, where phi' is below 6e-4
STEEPEST = 27**0.5 / 16  # max phi', at 1 / sqrt(3)


@dataclass(frozen=True)
class SyntheticProblem(ABC):
    """f = (1/N) sum_i f_i over R^d, in float64."""

    start: Tensor  # x_0, (d,)
    sigma: float  # noise of a gradient

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L, the smallest that holds for all clients."""

    @property
    @abstractmethod
    def lowest(self) -> float:
        """f*, or a bound below it."""

    @abstractmethod
    def heterogeneity(self, b: float) -> float:
        """The least G (or a bound above it) with (1/N) sum ||grad f_i||^2 <= G^2 + B^2 ||grad f||^2 everywhere."""

    @abstractmethod
    def values(self, points: Tensor) -> Tensor:
        """f_i at points (..., d) that all clients share: (..., N)."""

    @abstractmethod
    def gradients(self, points: Tensor, clients: Sequence[int] | None = None) -> Tensor:
        """grad f_i, each client's at a point of its own (..., S, d); (..., S, d)."""

    @abstractmethod
    def _rows(self) -> Tensor:
        """Each client's sample, (N, d, .); its last column takes the noise."""

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
        """The constants of the theorems, exact, for a choice of B."""
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
    """The vector w as a model that gives the loss of each sample."""

    def __init__(self, start: Tensor, losses: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())
        self.losses = losses

    def forward(self, x: Tensor) -> Tensor:
        """One value for each sample."""
        return self.losses(self.w, x)


def add_gradient_noise(x: Tensor, generator: torch.Generator, sigma: float) -> Tensor:
    """The sample with fresh noise in the last column, with a mean squared norm of sigma^2."""
    xi = torch.randn(x.shape[:-1], generator=generator, dtype=x.dtype)
    return torch.cat([x[..., :-1], sigma * x.shape[-2] ** -0.5 * xi.unsqueeze(-1)], dim=-1)


@dataclass(frozen=True)
class NonConvexProblem(SyntheticProblem):
    """A non-convex problem: each client has a valley of its own in each coordinate, with height h_i and centre c_i.

        f_i(x) = sum_n h_{i,n} phi(x_n - c_{i,n}),    phi(r) = r^2 / (2 (1 + r^2))        (Geman and McClure's loss)

    phi'' lies between -1/4 and 1, so L = max h. Gradients are bounded, and f is a sum over coordinates, so f* and the
    least G for a B are found by a search along lines, with a margin for the grid.
    """

    heights: Tensor  # (N, d)
    centres: Tensor  # (N, d)

    @classmethod
    def draw(
        cls, clients: int = 16, dimension: int = 4, spread: float = 1.0, sigma: float = 0.0, seed: int = 0
    ) -> NonConvexProblem:
        """Random valleys; `spread` says how far apart the clients' centres and heights are. At 0 all clients agree."""
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
        """A bound below f*, by at most L d step^2 / 8: the grid has a point within half a step of the minimum."""
        return float(self._lines[0].min(0).values.sum()) - self.smoothness * self.start.numel() * GRID_STEP**2 / 8

    def heterogeneity(self, b: float) -> float:
        """The least G for a B, with a margin for the grid; beyond the grid all gradients are close to 0."""
        _, slope, square = self._lines
        steepest = (1 + b**2) * 2 * self.smoothness**2 * STEEPEST  # how fast the difference can change
        margin = self.start.numel() * steepest * GRID_STEP / 2
        return float(((square - b**2 * slope**2).max(0).values.clamp(min=0).sum() + margin) ** 0.5)

    def values(self, points: Tensor) -> Tensor:
        """f_i at points that all clients share."""
        return (self.heights * _phi(points.unsqueeze(-2) - self.centres)).sum(-1)

    def gradients(self, points: Tensor, clients: Sequence[int] | None = None) -> Tensor:
        """Grad f_i at a point for each client."""
        which = slice(None) if clients is None else list(clients)
        return self.heights[which] * _slope(points - self.centres[which])

    @cached_property
    def _lines(self) -> tuple[Tensor, Tensor, Tensor]:
        """Along each coordinate's grid (M, d): the mean of f_i, of grad f_i, and of its square."""
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
