"""A model's state dict as Flower's arrays, and back to the flat vectors of a method.

Arrays come from other machines. `decode` checks the header and the length of an array before it uses the data: it never
allocates more than the model needs, and never unpickles.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy
from torch import Tensor, nn

from fedmim.errors import UserError
from fedmim.models.flat import averaged_buffers

NUMPY = "numpy.ndarray"  # how Flower calls its serialisation of arrays, numpy's .npy format
LONGEST_HEADER = 1024  # bytes; np.save writes 128


class StateDict:
    """Where the trained parameters and the averaged buffers are in a model's state dict.

    The state dict also has frozen parameters and constants, which are sent but never changed. Buffers outside it
    (`persistent=False`) are in `other_buffers`: positions in the list of averaged buffers.
    """

    def __init__(self, module: nn.Module) -> None:
        self.state: dict[str, Tensor] = module.state_dict(keep_vars=True)
        sizes = {id(p): p.numel() for p in module.parameters() if p.requires_grad}
        if any(p.dtype == torch.bfloat16 for p in module.parameters()):
            raise UserError("model: Flower does not support bfloat16 arrays; use model.float()")
        starts = np.cumsum([0, *sizes.values()]).tolist()
        places = {key: slice(*pair) for key, pair in zip(sizes, pairwise(starts), strict=True)}
        buffers = {id(buffer): place for place, buffer in enumerate(averaged_buffers(module))}
        # Tied weights have several names: all are written, the first one is read.
        self._params = {name: places[id(t)] for name, t in self.state.items() if id(t) in places}
        self._buffers = {name: buffers[id(t)] for name, t in self.state.items() if id(t) in buffers}
        self.size = starts[-1]  # d
        self.dtype = next(p.dtype for p in module.parameters() if p.requires_grad)
        self.buffers = averaged_buffers(module)
        self.other_buffers = sorted(set(buffers.values()) - set(self._buffers.values()))
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in self.state.values())

    def record(self, params: Tensor, buffers: Sequence[Tensor]) -> ArrayRecord:
        """The state dict with this flat vector (d,) and these buffers."""

        def value(name: str, tensor: Tensor) -> Tensor:
            if name in self._params:
                return params[self._params[name]].view(tensor.shape)
            return buffers[self._buffers[name]] if name in self._buffers else tensor

        return ArrayRecord({name: encode(value(name, tensor)) for name, tensor in self.state.items()})

    def empty(self) -> Tensor:
        """A vector (d,) for `read` to write to."""
        return torch.empty(self.size, dtype=self.dtype)

    def read(self, record: ArrayRecord, params: Tensor) -> dict[int, Tensor]:
        """Write the flat vector (d,) to `params`; return the buffers by their position.

        Raises ValueError if the record is of a different model.
        """
        check_names(record, self.state, "the state dict of the model")
        buffers = dict[int, Tensor]()
        for name, tensor in self.state.items():
            array = decode(record[name], tuple(tensor.shape), tensor.dtype, name)
            if name in self._params:
                np.copyto(params[self._params[name]].view(tensor.shape).numpy(), array)
            elif name in self._buffers:
                buffers[self._buffers[name]] = torch.from_numpy(array.copy())
        return buffers


def encode(tensor: Tensor) -> Array:
    """A tensor as Flower's array."""
    return Array(tensor.detach().cpu().numpy())


def decode(array: Array, shape: tuple[int, ...] | None, dtype: torch.dtype, name: str) -> np.ndarray[Any, Any]:
    """A read-only view of an array's data, which must have this shape and dtype; ValueError if it does not.

    Without a shape, the array must be a vector of any length.
    """
    data, wanted = array.data, torch.empty(0, dtype=dtype).numpy().dtype
    if array.stype != NUMPY or not isinstance(data, bytes):
        raise ValueError(f"{name} is not an array of numpy")
    start, found, fortran, kind = _header(data, name)
    shape = found if shape is None and len(found) == 1 else shape
    if (found, kind) != (shape, wanted):
        raise ValueError(f"{name} is {found} of {kind}, expected {shape} of {wanted}")
    if len(data) - start != wanted.itemsize * math.prod(found):
        raise ValueError(f"{name} has {len(data) - start} bytes of data, which is not the size in its header")
    flat = np.frombuffer(data, wanted, offset=start)
    return flat.reshape(found[::-1]).T if fortran else flat.reshape(found)


def _header(data: bytes, name: str) -> tuple[int, tuple[int, ...], bool, np.dtype[Any]]:
    """Where the data starts, shape, Fortran order and dtype, from the header of the .npy format."""
    head = io.BytesIO(data[:LONGEST_HEADER])
    try:
        version = npy.read_magic(head)
        if version != (1, 0):
            raise ValueError(f"version {version}")
        shape, fortran, kind = npy.read_array_header_1_0(head, max_header_size=LONGEST_HEADER)
    except (ValueError, TypeError, SyntaxError, EOFError, RecursionError, MemoryError) as error:
        raise ValueError(f"{name} has no valid header of an array") from error
    return head.tell(), shape, fortran, kind


def check_names(found: Iterable[str], expected: Iterable[str], what: str) -> None:
    """Raise ValueError if the names differ from the expected ones."""
    missing, more = (sorted(set(a) - set(b)) for a, b in ((expected, found), (found, expected)))
    if missing or more:
        words = [f"{label} {_listed(names)}" for label, names in (("without", missing), ("with", more)) if names]
        raise ValueError(f"the reply is not {what}: it comes {' and '.join(words)}")


def _listed(names: Sequence[str]) -> str:
    """The first names, shortened: they come from other machines."""
    shown = ", ".join(repr(name[:40]) for name in names[:3])
    return f"{shown}, ..." if len(names) > 3 else shown
