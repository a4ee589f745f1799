"""Names and sizes of a method's vectors: what is sent, and what clients keep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, Local, Vectors
from fedmim.errors import UserError

Sizes = dict[str, int]  # name of a vector -> number of elements


@dataclass(frozen=True)
class Wire:
    """The vectors of one client in one round."""

    broadcast: Sizes  # what all clients need
    down: Sizes  # what is sent to a client if the server knows its number of steps
    upload: Sizes
    slots: Sizes

    @classmethod
    def of(cls, algorithm: Algorithm, params: Tensor) -> Wire:
        """Run one round on zeros to find the vectors; raise UserError for a method that breaks the contract."""
        zeros = torch.zeros_like(params)
        broadcast = algorithm.broadcast(algorithm.init(zeros))
        down = algorithm.send(broadcast, 1.0)
        local = Idle(down, dict.fromkeys(algorithm.client_slots, zeros), 1.0, 1.0, first=1.0)
        local.carry = {name: vector.clone() for name, vector in algorithm.plan(local).carry.items()}
        algorithm.gradient(zeros, local)
        upload, kept = algorithm.finish(zeros, local)
        wire = cls(*map(sizes, (broadcast, down, upload, kept)))
        wire._check(algorithm, len(params))
        return wire

    @classmethod
    def of_vectors(cls, algorithm: Algorithm) -> Wire:
        """For a model with one parameter, so that sizes count vectors."""
        return cls.of(algorithm, torch.zeros(1))

    def _check(self, algorithm: Algorithm, size: int) -> None:
        title = algorithm.title
        for vectors, where in ((self.broadcast, "broadcast"), (self.down, "send"), (self.upload, "finish")):
            if vectors.get("params") != size:
                raise UserError(f'{title}: {where} must return "params" of size {size}, got {vectors.get("params")}')
        declared = dict.fromkeys(algorithm.client_slots, size)
        if self.slots != declared:
            found, wanted = (", ".join(f"{k} ({n})" for k, n in each.items()) for each in (self.slots, declared))
            raise UserError(f"{title}: finish must return the slots {wanted or 'none'}, got {found or 'none'}")


class Idle(Local):
    """A client with zero loss everywhere."""

    def grad(self, w: Tensor) -> Tensor:
        """Zero."""
        return torch.zeros_like(w)

    full_gradient = grad

    def random_like(self, w: Tensor) -> Tensor:
        """One half."""
        return torch.full_like(w, 0.5)


def sizes(vectors: Vectors) -> Sizes:
    """The number of elements of each vector."""
    return {name: vector.numel() for name, vector in vectors.items()}
