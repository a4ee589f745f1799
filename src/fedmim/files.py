"""Atomic file writes, and folders that only one process uses at a time.

A failed write raises an OSError that names the file and the remedy.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from filelock import FileLock, Timeout

from fedmim.errors import BusyError

if TYPE_CHECKING:
    from torch import Tensor

LOCK = ".lock"
ENTRY = "fedmim"  # key in the metadata of a safetensors file
REMEDIES = {
    errno.ENOSPC: "free some space, then resume",
    errno.EDQUOT: "free some space or raise the quota, then resume",
    errno.EROFS: "make the file system writable or choose another folder",
    errno.EACCES: "change the permissions or choose another folder",
    errno.EPERM: "change the permissions or choose another folder",
    errno.EIO: "check the disk, then resume",
}


class WriteError(OSError):
    """A failed write; names the file and the remedy."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Add the name of the file and the remedy to a disk error."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        raise WriteError(error.errno, f"{error.strerror}; {REMEDIES[error.errno]}", str(path)) from error


@contextmanager
def replacing(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """Yields a temporary path next to `path` to write to. It then replaces `path`; on an error it is deleted.

    The content is synced before the rename, so a power failure leaves the old file or the new one. With `previous`, the
    old file is kept under that name.
    """
    temporary = path.with_name(f".{path.name}.part")  # a fixed name: the remains of a killed process are overwritten
    with writing(path):
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            if previous and path.exists():
                path.replace(previous)
            temporary.replace(path)
        finally:
            with suppress(OSError):  # on a read-only disk; report the first error
                temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that a power failure does not undo its renames."""
    with writing(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    with writing(path):
        path.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove the temporary files that killed processes left in `replacing`, in a folder and its sub-folders."""
    for path in folder.rglob(".*.part"):
        remove(path)


class AppendedLines:
    """A text file to append whole lines to; a line that cannot be written leaves no partial line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            self._file = path.open("ab", buffering=0)

    def add(self, line: str) -> None:
        """Append a line."""
        whole = self._file.tell()
        left = line.encode() + b"\n"
        with writing(self._path):
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError:
                with suppress(OSError):
                    self._file.truncate(whole)
                raise

    def sync(self) -> None:
        """Sync the file to disk."""
        with writing(self._path):
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def folder_lock(folder: Path) -> FileLock:
    """The lock of a folder. It is reentrant for its holder and excludes other objects and processes.

    The system releases it when the process ends, even if it is killed. It also works between machines that share a
    folder over NFS with locks enabled. On a file system without locks, filelock falls back to a plain file, which a
    killed process leaves behind: remove .lock there.
    """
    return FileLock(folder / LOCK)


@contextmanager
def holding(lock: FileLock, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a folder; with `wait`, wait until other processes have released it."""
    try:
        with writing(Path(lock.lock_file)):
            lock.acquire(timeout=-1 if wait else 0)
    except Timeout as error:
        raise BusyError(f"{Path(lock.lock_file).parent}: another process is using this folder") from error
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise
        yield  # a network file system with locks disabled: a second process is not kept out
        return
    try:
        yield
    finally:
        lock.release()


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None, previous: Path | None = None
) -> None:
    """Write a safetensors file atomically, with a checksum of its content; `previous` as in `replacing`."""
    from safetensors.torch import save

    own: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        shared = tensor.untyped_storage().data_ptr() in storages  # not allowed by the format
        own[name] = tensor.clone() if shared else tensor.contiguous()
        storages.add(tensor.untyped_storage().data_ptr())
    # One entry, because safetensors writes several in any order, and equal runs must have equal files.
    entry = json.dumps({**(metadata or {}), "checksum": checksum(own, metadata)})
    with replacing(path, previous) as temporary:
        temporary.write_bytes(save(own, {ENTRY: entry}))


def read_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of a safetensors file. Raises ValueError if the file is damaged."""
    from safetensors import SafetensorError, safe_open

    metadata = read_metadata(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    written = metadata.pop("checksum", None)  # files of version 0.1.0 have none
    if written is not None and written != checksum(tensors, metadata):
        raise ValueError("its content has changed since it was written: the checksum differs")
    return {name: tensor.to(device) for name, tensor in tensors.items()}, metadata


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file, including the checksum."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    try:
        entry = json.loads(metadata.get(ENTRY, "{}"))
    except RecursionError:
        entry = None
    if isinstance(entry, dict) and "checksum" in entry:
        return entry
    if metadata and not (isinstance(entry, dict) and "method" in entry):  # version 0.1.0 wrote this key or nothing
        raise ValueError("its metadata has changed since it was written")
    return metadata


def checksum(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    """A CRC-32 of the tensors, their names, shapes and dtypes, and the metadata, as eight hex digits."""
    import torch

    total = zlib.crc32(repr(sorted((metadata or {}).items())).encode())
    for name, tensor in sorted(tensors.items()):
        total = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(), total)
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        total = zlib.crc32(content.numpy().data, total)
    return f"{total:08x}"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
