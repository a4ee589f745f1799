"""The global random states of torch, NumPy and Python, from which the transforms of a Dataset draw."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from fedmim.data.lazy_arrays import np, torch


class RandomStates:
    """A copy of the current states."""

    def __init__(self) -> None:
        self._torch, self._numpy, self._python = torch.get_rng_state(), np.random.get_state(), random.getstate()

    def restore(self) -> None:
        """Make these the current states again."""
        torch.set_rng_state(self._torch)
        np.random.set_state(self._numpy)
        random.setstate(self._python)


@contextmanager
def preserved_randomness() -> Iterator[None]:
    """Restore the states at the end."""
    before = RandomStates()
    try:
        yield
    finally:
        before.restore()


class KeyedRandomness:
    """A sequence of random numbers that depends on a 32-bit seed alone, drawn from the global states."""

    def __init__(self, seed: int) -> None:
        with preserved_randomness():
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            self._states = RandomStates()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Draw from the sequence, where the last use of it stopped."""
        with preserved_randomness():
            self._states.restore()
            yield
            self._states = RandomStates()
