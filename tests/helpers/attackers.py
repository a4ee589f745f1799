"""Dishonest clients for a simulation: they train as the others do, then send something else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

import fedmim
from fedmim.simulation.public_point import idle_upload
from fedmim.simulation.training import Reply

Change = Callable[[Tensor, Tensor], Tensor]  # from the honest upload and that of a client with zero gradients


def _noise(upload: Tensor, idle: Tensor) -> Tensor:
    return idle + 10 * torch.randn(idle.shape, generator=torch.Generator().manual_seed(7), dtype=idle.dtype)


ATTACKS: dict[str, Change | None] = {
    "sign flip": lambda upload, idle: 2 * idle - upload,
    "scaled by 1e30": lambda upload, idle: upload * 1e30,
    "noise": _noise,
    "zeros": lambda upload, idle: torch.zeros_like(upload),
    "replay": None,  # of the first upload that the client sent
}


def choose_attackers(clients: int, part: float, seed: int = 0) -> frozenset[int]:
    """This part of the clients."""
    return frozenset(random.Random(seed).sample(range(clients), round(part * clients)))


def attack(run: fedmim.rounds, attackers: frozenset[int], name: str) -> fedmim.rounds:
    """Make these clients of a run dishonest from now on."""
    honest, change, first = run._execute, ATTACKS[name], {}

    def execute(algorithm, model, work) -> Iterator[Reply]:
        for reply in honest(algorithm, model, work):
            if reply.client not in attackers:
                yield reply
                continue
            if change is None:
                kept = {key: vector.clone() for key, vector in reply.upload.items()}
                yield replace(reply, upload=first.setdefault(reply.client, kept))
                continue
            idle = idle_upload(algorithm, work.settings, work.down, work.lr, int(reply.steps))
            yield replace(reply, upload={key: change(vector, idle[key]) for key, vector in reply.upload.items()})

    run._execute = execute
    return run
