"""Shared memory: tensors that several processes can access.

It has no name, only file descriptors that processes pass on, so it is freed when the last process ends.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle
import torch
from torch import Tensor

SMALLEST = 1 << 16  # bytes; smaller tensors are pickled
ALIGNMENT = 64  # bytes


@dataclass(frozen=True)
class Span:
    """The location of a tensor in shared memory."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def count(self) -> int:
        """The number of elements."""
        return torch.Size(self.shape).numel()


class SharedMemory:
    """Shared memory that is open in this process. It is freed when no process has a descriptor or tensor of it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)  # at the latest with this object; tensors stay valid
        self._bytes = mmap.mmap(descriptor, os.fstat(descriptor).st_size)

    def tensor(self, span: Span) -> Tensor:
        """The tensor at this location; all processes see the same data."""
        if not span.count:
            return torch.empty(span.shape, dtype=span.dtype)
        flat = torch.frombuffer(self._bytes, dtype=span.dtype, count=span.count, offset=span.start)
        return flat.view(span.shape)

    def load(self, span: Span) -> Any:
        """The value that `SharedLayout.share` stored there; its large tensors are in shared memory."""
        return TensorUnpickler(io.BytesIO(self.tensor(span).numpy().tobytes()), self.tensor).load()


class SharedLayout:
    """Collects what goes into shared memory."""

    def __init__(self) -> None:
        self._size = 0
        self._filled: dict[int, tuple[Tensor, Span]] = {}  # by id, which is unique as long as the tensor is kept here

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Span:
        """Reserve space for a tensor of zeros."""
        span = Span(self._size, shape, dtype)
        self._size += -(-span.count * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return span

    def copy(self, tensor: Tensor) -> Span:
        """Reserve space for a copy of a tensor; the same tensor gets the same space."""
        if id(tensor) not in self._filled:
            self._filled[id(tensor)] = tensor, self.zeros(tuple(tensor.shape), tensor.dtype)
        return self._filled[id(tensor)][1]

    def share(self, value: Any) -> tuple[SharedMemory, Span]:
        """Store any value and return the memory and location; functions and classes of a script are stored by value."""
        file = io.BytesIO()
        TensorPickler(file, self.copy).dump(value)
        content = self.copy(torch.frombuffer(file.getbuffer(), dtype=torch.uint8))
        memory = SharedMemory(nameless_file(self._size))
        for tensor, span in self._filled.values():
            memory.tensor(span).copy_(tensor)
        return memory, content


def nameless_file(size: int) -> int:
    """The descriptor of a new file of zeros in memory, or in a temporary file if the system does not support it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fedmim")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


class TensorPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a value without its large tensors; `keep` stores these and returns what `load` finds them by."""

    def __init__(self, file: io.BytesIO, keep: Callable[[Tensor], Any]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._keep = keep

    def persistent_id(self, obj: Any) -> Any:
        """What is pickled instead of a large tensor."""
        plain = type(obj) is Tensor and obj.device.type == "cpu" and obj.layout == torch.strided
        if plain and not obj.requires_grad and obj.numel() * obj.element_size() >= SMALLEST:
            return self._keep(obj)
        return None


class TensorUnpickler(pickle.Unpickler):
    """Loads what TensorPickler pickled."""

    def __init__(self, file: io.BytesIO, load: Callable[[Any], Tensor]) -> None:
        super().__init__(file)
        self._load = load
        self._tensors: dict[Any, Tensor] = {}  # a tensor that was pickled twice is loaded once

    def persistent_load(self, pid: Any) -> Tensor:
        """The tensor."""
        if pid not in self._tensors:
            self._tensors[pid] = self._load(pid)
        return self._tensors[pid]
