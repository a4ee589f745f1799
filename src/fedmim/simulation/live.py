"""Live data in a round: every minibatch is read from the client's Dataset when it is needed."""

from __future__ import annotations

import torch
from torch import Tensor

from fedmim.data import KeyedRandomness, LiveData
from fedmim.simulation.samples import Samples, check_samples, to_device


class LiveSamples:
    """The samples of one client in one round, whose random transforms depend on the seed alone.

    Reading uses the global random states of torch, NumPy and Python, seeded for this client and round, and restores
    them afterwards. So every engine reads the same samples, and reading affects nothing else.
    """

    def __init__(self, data: LiveData, seed: int, device: torch.device | str) -> None:
        self._data, self._device = data, device
        self._randomness = KeyedRandomness(seed)

    def __len__(self) -> int:
        return len(self._data)

    def read(self, index: Tensor) -> Samples:
        """The samples at these indices, read in this order."""
        with self._randomness.active():
            samples = self._data.read(index.tolist())
        check_samples(self._data.where, samples)
        return to_device(samples, self._device)
