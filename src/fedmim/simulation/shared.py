"""Shared memory: tensors that several processes see, as files in memory whose names are removed once all have them."""

from __future__ import annotations

import io
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from torch import Tensor

SMALLEST = 1 << 16  # bytes; smaller tensors travel with the pickle

Opening = tuple[str, tuple[int, ...], torch.dtype]


class SharedFolder(tempfile.TemporaryDirectory[str]):
    """Makes shared tensors; leaving its `with` block removes their names, and the memory lives on where it is open."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        place = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
        super().__init__(prefix=f"fedmim-{os.getpid()}-", dir=place)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Opening]:
        """A new shared tensor of zeros, and how another process opens it."""
        handle, name = tempfile.mkstemp(dir=self.name)
        os.close(handle)
        opening = name, shape, dtype
        return open_shared(*opening), opening

    def dumps(self, value: Any) -> bytes:
        """Anything as bytes, for `pickle.loads` in another process: functions and classes of a script or notebook by
        value, large tensors by shared memory."""
        file = io.BytesIO()
        _Pickler(file, self).dump(value)
        return file.getvalue()


def open_shared(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A shared tensor by its name."""
    count = torch.Size(shape).numel()
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.from_file(name, shared=True, size=count, dtype=dtype).view(shape)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, folder: SharedFolder) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._folder = folder
        self._shared: dict[int, tuple[Tensor, Opening]] = {}

    def reducer_override(self, obj: Any) -> Any:
        plain = type(obj) is Tensor and obj.device.type == "cpu" and obj.layout == torch.strided
        if plain and not obj.requires_grad and obj.numel() * obj.element_size() >= SMALLEST:
            if id(obj) not in self._shared:
                shared, opening = self._folder.empty(tuple(obj.shape), obj.dtype)
                shared.copy_(obj)
                self._shared[id(obj)] = obj, opening
            return open_shared, self._shared[id(obj)][1]
        return super().reducer_override(obj)
