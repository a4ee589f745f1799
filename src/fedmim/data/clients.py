"""The training data of all clients: a sequence of (x, y), each gathered on access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from fedmim.data.colour import ColourShift
from fedmim.data.lazy_arrays import Tensor
from fedmim.errors import UserError


class Clients(Sequence[tuple[Tensor, Tensor]]):
    """Client i has the samples `parts[i]` of (x, y); with a colour shift, each client has its own colours.

    Only x, y and the indices are in memory, so ten thousand clients need no more memory than one.
    """

    def __init__(self, x: Tensor, y: Tensor, parts: Sequence[Tensor], colour: ColourShift | None = None) -> None:
        if len(x) != len(y):
            raise UserError(f"x has {len(x)} samples but y has {len(y)}: the numbers must be equal")
        if colour is not None:
            colour.check(x)
        self.x, self.y, self.parts, self.colour = x, y, parts, colour
        self.sizes = [len(part) for part in parts]

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, client: int) -> tuple[Tensor, Tensor]: ...
    @overload
    def __getitem__(self, client: slice) -> list[tuple[Tensor, Tensor]]: ...
    def __getitem__(self, client: int | slice) -> tuple[Tensor, Tensor] | list[tuple[Tensor, Tensor]]:
        clients = range(len(self))[client]  # IndexError past the end; negative indices count from the end
        if isinstance(clients, range):
            return [self[each] for each in clients]
        part = self.parts[clients].to(self.x.device)
        x, y = self.x[part], self.y[part]
        return (x if self.colour is None else self.colour(x, clients)), y
