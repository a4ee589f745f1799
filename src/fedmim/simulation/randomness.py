"""Keyed randomness: every draw depends only on the seed and its purpose, not on earlier draws.

So the result does not depend on the engine, the number of workers, or whether the run was resumed.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch
from torch import Tensor

from fedmim.simulation.settings import Settings


def key(purpose: str, *numbers: int) -> int:
    """A 32-bit key; torch's CPU generator uses only 32 bits of a seed."""
    text = " ".join([purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def sample_clients(seed: int, round: int, clients: int, active: int) -> list[int]:
    """The ids of the clients that train in a round, without replacement, ascending."""
    return sorted(random.Random(key("clients", seed, round)).sample(range(clients), active))


def client_generator(seed: int, round: int, client: int) -> torch.Generator:
    """The generator of a client's minibatches and augmentation in a round."""
    return torch.Generator().manual_seed(key("batches", seed, round, client))


def upload_numbers(seed: int, round: int, client: int, like: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) for a client's upload in a round, of the shape of `like`, (d,)."""
    generator = torch.Generator().manual_seed(key("upload", seed, round, client))
    return torch.rand(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def minibatches(
    samples: int, settings: Settings, generator: torch.Generator, first: int = 0, steps: int | None = None
) -> list[Tensor]:
    """The indices of each of a client's minibatches in a round: fresh permutations, cut into batches.

    `first` is the index of the client's first sample if the samples of several clients are concatenated. `steps` is
    K if it is not that of the settings.
    """
    steps, batches, size = steps or settings.steps(samples), list[Tensor](), settings.batch_size or samples
    while len(batches) < steps:
        order = torch.randperm(samples, generator=generator).add_(first)
        batches += order.split(size)[: settings.batches(samples)]
    return batches[:steps]


def gaussian(purpose: str, seed: int, round: int, size: int) -> Tensor:
    """Standard normal numbers, (size,), in float64, for differential privacy.

    They are a deterministic function of the arguments, but cannot be predicted without the seed if it is a secret of at
    least 128 bits: the numbers are 53 bits each of SHAKE-256, a cryptographic hash, through the inverse of the normal
    distribution function. torch's generators have 32-bit seeds, which can be tried one by one.
    """
    from scipy.special import ndtri  # type: ignore[import-untyped]  # slow to import, and only noise needs it

    text = f"{purpose} {seed} {round}"
    bits = np.frombuffer(hashlib.shake_256(text.encode()).digest(8 * size), dtype="<u8") >> 11
    return torch.from_numpy(ndtri((bits + 0.5) * 2.0**-53))
