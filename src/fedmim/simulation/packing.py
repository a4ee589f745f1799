"""Values with large tensors as bytes and arrays, which Ray passes on without copies within a machine."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmim.simulation.shared import TensorPickler, TensorUnpickler

Kind = tuple[torch.dtype, tuple[int, ...]]


@dataclass(frozen=True)
class Packed:
    """A pickled value, and its large tensors as arrays of bytes."""

    content: bytes
    arrays: list[NDArray[np.uint8]]
    kinds: list[Kind]

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return len(self.content) + sum(array.nbytes for array in self.arrays)


def pack_value(value: Any) -> Packed:
    """Pickle any value; functions and classes of a script are pickled by value. Tensors are not copied."""
    packed, numbers = Packed(b"", [], []), dict[int, int]()
    kept: list[Tensor] = []  # an id is unique as long as its tensor exists

    def keep(tensor: Tensor) -> int:
        if id(tensor) not in numbers:
            numbers[id(tensor)] = len(kept)
            kept.append(tensor)
            packed.arrays.append(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())
            packed.kinds.append((tensor.dtype, tuple(tensor.shape)))
        return numbers[id(tensor)]

    file = io.BytesIO()
    TensorPickler(file, keep).dump(value)
    return Packed(file.getvalue(), packed.arrays, packed.kinds)


def unpack(packed: Packed, *, copy: bool = False) -> Any:
    """The value. Without `copy`, its large tensors may be in memory that must not be written to."""

    def load(number: int) -> Tensor:
        dtype, shape = packed.kinds[number]
        flat = torch.from_numpy(packed.arrays[number]).view(dtype)
        return (flat.clone() if copy else flat).view(shape)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return TensorUnpickler(io.BytesIO(packed.content), load).load()
