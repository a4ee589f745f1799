"""The streaming mean of the clients' uploads, and the client drift."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedmim.algorithms import Vectors

BLOCK = 16  # clients per partial sum; machines that add partial sums in a tree get the same bits
CHUNK_ELEMENTS = 1 << 16  # elements per step, so the float64 temporaries stay in the cache


class StreamingMean:
    """The weighted mean of vectors that arrive one client at a time; memory does not grow with the number of clients.

    Sums are float64 and, if there is a reference (the vector the client started from), relative to it: in float32 the
    client drift, a small difference of large squares, would be noise.
    """

    def __init__(self, reference: Vectors) -> None:
        self.reference = reference
        self.weight = 0.0
        self.clients = 0
        self._squares = 0.0  # sum of weight * ||x_i - x_t||^2
        self._dtypes: dict[str, torch.dtype] = {}
        self._total: Vectors = {}
        self._block: Vectors = {}

    def add(self, weight: float, vectors: Vectors) -> None:
        """Add one client's upload, vectors of shape (d,)."""
        for name, vector in vectors.items():
            if name not in self._block:
                self._dtypes[name] = vector.dtype
                self._block[name] = vector.new_zeros(vector.shape, dtype=torch.float64)
            self._accumulate(name, weight, vector)
        self.weight += weight
        self.clients += 1
        if self.clients % BLOCK == 0:
            self._close_block()

    def _accumulate(self, name: str, weight: float, vector: Tensor) -> None:
        total, reference, squares = self._block[name], self.reference.get(name), 0.0
        for part in chunks(vector):
            change = vector[part].double()
            if reference is not None:
                change = change - reference[part]
            if name == "params":
                squares += torch.dot(change, change).item()
            total[part].add_(change, alpha=weight)
        self._squares += weight * squares

    def _close_block(self) -> None:
        if self._total:
            for name, block in self._block.items():
                self._total[name] += block
        else:
            self._total = self._block
        self._block = {}

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
        """The weighted sum of each vector minus its reference."""
        if self._block:
            self._close_block()
        return self._total


def chunks(vector: Tensor) -> Iterator[slice]:
    """Consecutive slices of the vector."""
    return (slice(start, start + CHUNK_ELEMENTS) for start in range(0, len(vector), CHUNK_ELEMENTS))
