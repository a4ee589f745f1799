"""A non-convex problem with known constants: every client has a valley of its own in each coordinate.

    f_i(x) = sum_n h_{i,n} phi(x_n - c_{i,n}),    phi(r) = r^2 / (2 (1 + r^2))        (Geman and McClure's loss)

phi'' lies between -1/4 and 1, so L = max h; gradients are bounded, and f is a sum over coordinates, so that f* and
the least G for a B are found by search along lines, with a margin for the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedmim.theory.synthetic import Synthetic

STEP = 1e-3  # of the grid
REACH = 12.0  # of the grid beyond the valleys, where phi' is below 6e-4
STEEPEST = 27**0.5 / 16  # max phi', at 1 / sqrt(3)


@dataclass(frozen=True)
class Valleys(Synthetic):
    """Clients with heights h_i and centres c_i of their own."""

    heights: Tensor  # (N, d)
    centres: Tensor  # (N, d)

    @classmethod
    def draw(
        cls, clients: int = 16, dimension: int = 4, spread: float = 1.0, sigma: float = 0.0, seed: int = 0
    ) -> Valleys:
        """Random valleys; `spread` says how far apart the clients' centres, and their heights, are. At 0 all agree."""
        generator = torch.Generator().manual_seed(seed)
        depths = torch.rand(clients, dimension, generator=generator, dtype=torch.float64)
        heights = 1 - 0.5 * min(spread, 1.0) * depths
        centres = spread * torch.randn(clients, dimension, generator=generator, dtype=torch.float64)
        start = torch.full((dimension,), 1.0, dtype=torch.float64)
        return cls(start, sigma, heights, centres)

    @property
    def clients(self) -> int:
        """N."""
        return len(self.heights)

    @property
    def smoothness(self) -> float:
        """L = max h."""
        return float(self.heights.max())

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
        low, high = float(self.centres.min()) - REACH, float(self.centres.max()) + REACH
        grid = torch.arange(low, high + STEP, STEP, dtype=torch.float64)
        value, slope, square = (torch.zeros(len(grid), self.start.numel(), dtype=torch.float64) for _ in range(3))
        for height, centre in zip(self.heights, self.centres, strict=True):
            apart = grid.unsqueeze(1) - centre
            own = height * _slope(apart)
            value += height * _phi(apart)
            slope += own
            square += own**2
        return value / self.clients, slope / self.clients, square / self.clients

    @property
    def lowest(self) -> float:
        """f* less at most L d STEP^2 / 8: at the minimum the slope is 0, and the grid has a point within STEP / 2."""
        return float(self._lines[0].min(0).values.sum()) - self.smoothness * self.start.numel() * STEP**2 / 8

    def heterogeneity(self, b: float) -> float:
        """The least G for a B, with a margin for the grid; beyond the grid all gradients are next to nothing."""
        _, slope, square = self._lines
        steepest = (1 + b**2) * 2 * self.smoothness**2 * STEEPEST  # how fast the difference can change
        margin = self.start.numel() * steepest * STEP / 2
        return float(((square - b**2 * slope**2).max(0).values.clamp(min=0).sum() + margin) ** 0.5)

    def _rows(self) -> Tensor:
        return torch.stack([self.heights, self.centres, torch.zeros_like(self.centres)], dim=-1)

    def _module(self) -> nn.Module:
        return ValleyModel(self.start)


class ValleyModel(nn.Module):
    """The value at w of samples (h, c, xi), packed as (d, 3)."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        """One value for each sample."""
        return (x[..., 0] * _phi(self.w - x[..., 1]) + x[..., 2] * self.w).sum(-1)


def _phi(r: Tensor) -> Tensor:
    return r**2 / (2 * (1 + r**2))


def _slope(r: Tensor) -> Tensor:
    return r / (1 + r**2) ** 2
