"""Files that are written whole or not at all, and folders that one process at a time works in."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from fedmim.errors import BusyError

if TYPE_CHECKING:
    from torch import Tensor

LOCK = ".lock"


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


def folder_lock(folder: Path) -> FileLock:
    """The lock of a folder. Whoever holds it may take it again; other objects and processes may not.

    The system frees it when the process ends, however it ends. It also holds between machines that share a folder by
    NFS with its locks on. Where a file system has no locks at all, filelock falls back to a plain file, which a killed
    process leaves behind: remove .lock there.
    """
    return FileLock(folder / LOCK)


@contextmanager
def holding(lock: FileLock, wait: bool = False) -> Iterator[None]:
    """Keep others out of a folder, or with `wait` wait until they have left it."""
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout as error:
        raise BusyError(f"{Path(lock.lock_file).parent}: another process is at work here") from error
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise
        yield  # a network file system whose locks are off: nothing keeps a second process out
        return
    try:
        yield
    finally:
        lock.release()


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
