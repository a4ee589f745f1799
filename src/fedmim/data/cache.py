"""Tensors that were expensive to make, kept in a file: written whole or not at all, never trusted blindly.

The file carries the fingerprint of what it was made from and a checksum of its tensors. If either does not
fit, it is made again. A cache is a convenience, so a folder that cannot be written costs a line of warning,
not the run.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedmim.files import write_tensors

Tensors = dict[str, Tensor]


def cached(path: Path, fingerprint: str, make: Callable[[], Tensors]) -> Tensors:
    """The tensors in `path` if they are those of `fingerprint`, else what `make` returns, kept for later."""
    tensors = _read(path, fingerprint)
    if tensors is None:
        tensors = make()
        _write(path, fingerprint, tensors)
    return tensors


def _read(path: Path, fingerprint: str) -> Tensors | None:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("fingerprint") != fingerprint:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError):
        return None
    return tensors if metadata.get("checksum") == _checksum(tensors) else None


def _write(path: Path, fingerprint: str, tensors: Tensors) -> None:
    try:
        write_tensors(path, tensors, {"fingerprint": fingerprint, "checksum": _checksum(tensors)})
    except OSError as error:
        warnings.warn(f"no cache is kept, {path} cannot be written ({error})", stacklevel=2)


def _checksum(tensors: Tensors) -> str:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].numpy().data, zlib.crc32(name.encode(), total))
    return f"{total:08x}"
