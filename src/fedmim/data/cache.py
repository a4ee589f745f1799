"""A file of tensors that take long to make. It is written whole or not at all, and checked when it is read.

The file has the fingerprint of its sources and a checksum of its tensors. If one does not match, the tensors are made
again. If it cannot be written, there is a warning and the run goes on.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from fedmim.data.lazy_arrays import Tensor
from fedmim.files import write_tensors

Tensors: TypeAlias = "dict[str, Tensor]"


def cached_tensors(path: Path, fingerprint: str, make: Callable[[], Tensors]) -> Tensors:
    """The tensors in `path` if their fingerprint is this one, else those that `make` returns, which are then stored."""
    tensors = _read(path, fingerprint)
    if tensors is None:
        tensors = make()
        try:
            write_tensors(path, tensors, {"fingerprint": fingerprint, "checksum": _checksum(tensors)})
        except OSError as error:
            warnings.warn(f"no cache is kept, {path} cannot be written ({error})", stacklevel=2)
    return tensors


def _read(path: Path, fingerprint: str) -> Tensors | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("fingerprint") != fingerprint:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError):
        return None
    return tensors if metadata.get("checksum") == _checksum(tensors) else None


def _checksum(tensors: Tensors) -> str:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].numpy().data, zlib.crc32(name.encode(), total))
    return f"{total:08x}"
