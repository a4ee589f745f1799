"""Synthetic tasks whose constants are known exactly, run by the real simulator.

A client has one sample, a row of numbers that says what its f_i is; the model is the vector w, and the loss is
f_i(w) + <xi, w>, with fresh normal noise xi at every step. So E||g - grad f_i||^2 is sigma^2, no more and no less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedmim.simulation.task import Samples, Task
from fedmim.theory.problem import Problem


@dataclass(frozen=True)
class Synthetic(ABC):
    """f = (1/N) sum_i f_i over R^d, in float64."""

    start: Tensor  # x_0, (d,)
    sigma: float  # noise of a gradient

    @property
    @abstractmethod
    def clients(self) -> int:
        """N."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L, the smallest that serves all clients."""

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

    @abstractmethod
    def _module(self) -> nn.Module:
        """The loss of each sample as a function of the model."""

    def value(self, x: Tensor) -> Tensor:
        """f at points (..., d)."""
        return self.values(x).mean(-1)

    def gradient(self, x: Tensor) -> Tensor:
        """Grad f at points (..., d)."""
        shared = x.unsqueeze(-2).expand(*x.shape[:-1], self.clients, x.shape[-1])
        return self.gradients(shared).mean(-2)

    def problem(self, b: float = 1.0, c: float | None = None, mu: float | None = None) -> Problem:
        """The constants of the theorems, exact, for a choice of B."""
        gap = float(self.value(self.start)) - self.lowest
        return Problem(self.smoothness, self.sigma, self.heterogeneity(b), b, gap, c, mu)

    def task(self) -> Task:
        """The task for `fedmim.rounds`; train with full batches, neither decay nor clipping."""
        rows = self._rows()
        return Task(
            model=self._module(),
            clients=SingleSamples(rows),
            test=(rows[:1], torch.zeros(1)),
            loss=mean_of_outputs,
            augment=Noise(self.sigma) if self.sigma else None,
        )


class SingleSamples(Sequence[Samples]):
    """A sample for each client."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.target = torch.zeros(1)
        self.sizes = [1] * len(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, client: int) -> Samples:  # type: ignore[override]  # slices are not asked for
        return self.rows[client : client + 1], self.target


@dataclass(frozen=True)
class Noise:
    """Fresh noise in the last column, of squared norm sigma^2 in the mean."""

    sigma: float

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The sample with noise."""
        xi = torch.randn(x.shape[:-1], generator=generator, dtype=x.dtype)
        return torch.cat([x[..., :-1], self.sigma * x.shape[-2] ** -0.5 * xi.unsqueeze(-1)], dim=-1)


def mean_of_outputs(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a model that computes its own."""
    return outputs.mean()
