"""The training data of all clients: a sequence of (x, y), each gathered on access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from fedmim.data.colour import ColourShift
from fedmim.data.lazy_arrays import Tensor
from fedmim.errors import UserError


class Clients(Sequence[tuple[Any, Any]]):
    """Client i has the samples `parts[i]` of (x, y); with a colour shift, each client has its own colours.

    x and y are tensors or structures of tensors. Only they and the indices are in memory, so ten thousand clients need
    no more memory than one.
    """

    def __init__(self, x: Any, y: Any, parts: Sequence[Tensor], colour: ColourShift | None = None) -> None:
        from fedmim.structure import length  # imports torch

        if length(x) != length(y):
            raise UserError(f"x has {length(x)} samples but y has {length(y)}: the numbers must be equal")
        if colour is not None:
            colour.check(x)
        self.x, self.y, self.parts, self.colour = x, y, parts, colour
        self.sizes = [len(part) for part in parts]

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, client: int) -> tuple[Any, Any]: ...
    @overload
    def __getitem__(self, client: slice) -> list[tuple[Any, Any]]: ...
    def __getitem__(self, client: int | slice) -> tuple[Any, Any] | list[tuple[Any, Any]]:
        from fedmim.structure import each  # imports torch

        clients = range(len(self))[client]  # IndexError past the end; negative indices count from the end
        if isinstance(clients, range):
            return [self[number] for number in clients]
        part = self.parts[clients]
        x, y = (each(lambda tensor: tensor[part.to(tensor.device)], either) for either in (self.x, self.y))
        return (x if self.colour is None else self.colour(x, clients)), y
