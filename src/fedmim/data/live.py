"""LiveData: a client's Dataset that is read at every step, for random transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedmim.data.global_randomness import KeyedRandomness
from fedmim.data.reading import Batch, Reader, check_dataset, same
from fedmim.errors import UserError


@dataclass(frozen=True)
class LiveData:
    """Samples that are read whenever a minibatch needs them; slower than tensors in memory."""

    where: str
    """The name of the data in errors."""
    dataset: Any
    """A map-style torch Dataset, or a list of items."""
    reader: Reader
    """How its items become x and y."""

    def __post_init__(self) -> None:
        check_dataset(self.where, self.dataset)
        once, again = self._first(), self._first()
        if not same(once, again):
            raise UserError(
                f"{self.where}: item 0 is different when it is read again with the same global random states of torch, "
                "NumPy and Python, so runs could not be repeated; draw all random numbers from these"
            )
        self.reader.batch(self.where, [once])

    def _first(self) -> Any:
        with KeyedRandomness(0).active():
            return self.dataset[0]

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, index: Sequence[int]) -> Batch:
        """These items as one batch."""
        return self.reader.batch(self.where, [self.dataset[i] for i in index])
