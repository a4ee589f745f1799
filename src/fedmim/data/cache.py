"""A cache file for tensors that take long to compute. It is written atomically and checked when it is read.

The file has a fingerprint of its sources and a checksum of its tensors. If one of them does not match, the tensors are
computed again. If the file cannot be written, there is a warning and the run continues.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from fedmim.data.lazy_arrays import Tensor
from fedmim.files import read_tensors, write_tensors

Tensors: TypeAlias = "dict[str, Tensor]"


def cached_tensors(path: Path, fingerprint: str, make: Callable[[], Tensors]) -> Tensors:
    """The tensors in `path` if the fingerprint matches; otherwise the result of `make`, which is then stored."""
    tensors = _read(path, fingerprint)
    if tensors is None:
        tensors = make()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, tensors, {"fingerprint": fingerprint})
        except OSError as error:
            warnings.warn(f"data are not cached, because {path} cannot be written ({error})", stacklevel=2)
    return tensors


def _read(path: Path, fingerprint: str) -> Tensors | None:
    try:
        tensors, metadata = read_tensors(path)
    except (OSError, ValueError):
        return None
    return tensors if metadata.get("fingerprint") == fingerprint else None
