"""The streaming mean of the clients' uploads, and the client drift.

Clients are summed in a fixed order in blocks of 16: one by one within a block, then the blocks one by one. Machines can
sum different parts of a round at the same time (`PartialMean`), with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedmim.algorithms import Vectors

BLOCK = 16  # clients per block, including rejected ones
CHUNK_ELEMENTS = 1 << 16  # elements per step, so the float64 temporaries stay in the cache


@dataclass
class SumBlock:
    """The sums of up to 16 consecutive clients: of weight * (vector - reference), in float64."""

    sums: Vectors = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    added: list[tuple[float, float]] = field(default_factory=list)  # weight and weight * ||x_i - x_t||^2 of each client
    places: int = 0  # clients, including rejected ones

    @property
    def full(self) -> bool:
        """Whether the next client belongs to the next block."""
        return self.places == BLOCK

    def add(self, weight: float, vectors: Vectors, reference: Vectors) -> None:
        """Add one client's upload, vectors of shape (d,)."""
        squares = 0.0
        for name, vector in vectors.items():
            if name not in self.sums:
                self.dtypes[name] = vector.dtype
                self.sums[name] = vector.new_zeros(vector.shape, dtype=torch.float64)
            squares += self._accumulate(name, weight, vector, reference.get(name))
        self.added.append((weight, weight * squares))
        self.places += 1

    def _accumulate(self, name: str, weight: float, vector: Tensor, reference: Tensor | None) -> float:
        """Add a vector to its sum; for params, returns the squared distance from the reference."""
        total, squares = self.sums[name], 0.0
        for part in chunks(vector):
            change = vector[part].double()
            if reference is not None:
                change = change - reference[part]
            if name == "params":
                squares += torch.dot(change, change).item()
            total[part].add_(change, alpha=weight)
        return squares


class StreamingMean:
    """The weighted mean of vectors that arrive one client at a time; memory does not grow with the number of clients.

    Sums are float64 and, if there is a reference (the vector the client started from), relative to it: in float32 the
    client drift, a small difference of large squares, would be noise.
    """

    def __init__(self, reference: Vectors) -> None:
        self.reference = reference
        self.weight = 0.0
        self.clients = 0  # that were added
        self._squares = 0.0  # sum of weight * ||x_i - x_t||^2
        self._dtypes: dict[str, torch.dtype] = {}
        self._total: Vectors = {}  # of the full blocks
        self._block = SumBlock()

    def add(self, weight: float, vectors: Vectors) -> None:
        """Add one client's upload, vectors of shape (d,)."""
        self._block.add(weight, vectors, self.reference)
        self._count(*self._block.added[-1])
        self._close_if_full()

    def skip(self) -> None:
        """Leave out a client whose upload is rejected. It still has a place in its block."""
        self._block.places += 1
        self._close_if_full()

    def append(self, block: SumBlock) -> None:
        """Add the clients of a whole block, which is not changed. It must start where the last full block ended."""
        for each in block.added:
            self._count(*each)
        if block.full:
            self._add_up(block, copy=True)
        else:
            sums = {name: sums.clone() for name, sums in block.sums.items()}
            self._block = SumBlock(sums, dict(block.dtypes), list(block.added), block.places)

    def _count(self, weight: float, squares: float) -> None:
        self.weight += weight
        self._squares += squares
        self.clients += 1

    def _close_if_full(self) -> None:
        if self._block.full:
            self._close_block()

    def _close_block(self) -> None:
        self._add_up(self._block)
        self._block = SumBlock()

    def _add_up(self, block: SumBlock, copy: bool = False) -> None:
        """Add the sums of a block to the total; with `copy`, the block stays as it is."""
        self._dtypes |= block.dtypes
        for name, sums in block.sums.items():
            if name in self._total:
                self._total[name].add_(sums)
            else:
                self._total[name] = sums.clone() if copy else sums

    def mean(self) -> Vectors:
        """The mean of each vector, in its original dtype."""
        return {name: self._mean(name, total) for name, total in self.sums().items()}

    def _mean(self, name: str, total: Tensor) -> Tensor:
        mean, reference = total.new_empty(total.shape, dtype=self._dtypes[name]), self.reference.get(name)
        for part in chunks(total):
            change = total[part] / self.weight
            mean[part] = change if reference is None else change + reference[part]
        return mean

    def consistency(self) -> float:
        """Client drift: the weighted mean of ||x_i - mean||^2 over the clients' models."""
        total = self.sums()["params"]
        return max(0.0, self._squares / self.weight - torch.dot(total, total).item() / self.weight**2)

    def sums(self) -> Vectors:
        """The weighted sum of each vector minus its reference. No client can be added afterwards."""
        self._close_block()
        return self._total


class PartialMean:
    """The sums of consecutive clients of a round, from any position on.

    `continue_mean` adds them to the mean of all clients before them, with the same bits as one by one. It can be
    called again. Clients of a block that began before this part are held until then: at most 15.
    """

    def __init__(self, reference: Vectors, start: int) -> None:
        self._reference = reference
        self._ahead = -start % BLOCK  # clients that belong to a block of an earlier part
        self._held: list[tuple[float, Vectors] | None] = []
        self._blocks: list[SumBlock] = []

    @property
    def clients(self) -> int:
        """The number of clients so far, including rejected ones."""
        return len(self._held) + sum(block.places for block in self._blocks)

    @property
    def holds_next(self) -> bool:
        """Whether the vectors of the next client are held."""
        return len(self._held) < self._ahead

    def add(self, weight: float, vectors: Vectors | None) -> None:
        """Add the next client's upload; None if it is rejected."""
        if self.holds_next:
            self._held.append(None if vectors is None else (weight, vectors))
            return
        if not self._blocks or self._blocks[-1].full:
            self._blocks.append(SumBlock())
        if vectors is None:
            self._blocks[-1].places += 1
        else:
            self._blocks[-1].add(weight, vectors, self._reference)

    def continue_mean(self, mean: StreamingMean) -> None:
        """Add all clients of this part to the mean of those before."""
        for each in self._held:
            if each is None:
                mean.skip()
            else:
                mean.add(*each)
        for block in self._blocks:
            mean.append(block)


def chunks(vector: Tensor) -> Iterator[slice]:
    """Consecutive slices of the vector."""
    return (slice(start, start + CHUNK_ELEMENTS) for start in range(0, len(vector), CHUNK_ELEMENTS))
