"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; on leaving it takes the place of `path`, on an error it goes.

    The bytes reach the disk before the name does, so that a power failure leaves the old file or the new one.
    """
    temporary = path.with_name(f".{path.name}.part")  # always the same: what a kill left behind is written over
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file whole."""
    from safetensors.torch import save

    own: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        shared = tensor.untyped_storage().data_ptr() in storages  # which the format does not allow
        own[name] = tensor.clone() if shared else tensor.contiguous()
        storages.add(tensor.untyped_storage().data_ptr())
    with replacing(path) as temporary:
        temporary.write_bytes(save(own, metadata))


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
