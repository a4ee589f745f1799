"""Files that are written whole or not at all, and folders that one process at a time works in.

A write that the disk refuses is an OSError that names the file and says what to do.
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
ENTRY = "fedmim"  # of a safetensors file's metadata
REMEDIES = {
    errno.ENOSPC: "free some space, then resume",
    errno.EDQUOT: "free some space or have the quota raised, then resume",
    errno.EROFS: "make the file system writable or choose another folder",
    errno.EACCES: "change the permissions or choose another folder",
    errno.EPERM: "change the permissions or choose another folder",
    errno.EIO: "check the disk, then resume",
}


class WriteError(OSError):
    """A write that the disk refused; it names the file and the remedy."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Let an error of the disk name the file that is being written, and say what to do."""
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
    """A temporary path beside `path` to write to; on leaving it takes the place of `path`, on an error it goes.

    The bytes reach the disk before the name does, so that a power failure leaves the old file or the new one. The old
    one is kept as `previous`, if that is given.
    """
    temporary = path.with_name(f".{path.name}.part")  # always the same: what a kill left behind is written over
    with writing(path):
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            if previous and path.exists():
                path.replace(previous)
            temporary.replace(path)
        finally:
            with suppress(OSError):  # of a disk that takes no writes at all: the first error is the one to report
                temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder with those above it, unless it is there."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def sync_folder(path: Path) -> None:
    """Let the names of a folder reach the disk: after it, a power failure undoes none of its renames."""
    with writing(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    with writing(path):
        path.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove what kills left behind in the middle of `replacing`, at or below a folder."""
    for path in folder.rglob(".*.part"):
        remove(path)


class AppendedLines:
    """A text file that grows by whole lines: one that cannot be written leaves no part of it."""

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
        """Let all lines reach the disk."""
        with writing(self._path):
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


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
        with writing(Path(lock.lock_file)):
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


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None, previous: Path | None = None
) -> None:
    """Write a safetensors file whole, with a checksum of all that is in it; `previous` as for `replacing`."""
    from safetensors.torch import save

    own: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        shared = tensor.untyped_storage().data_ptr() in storages  # which the format does not allow
        own[name] = tensor.clone() if shared else tensor.contiguous()
        storages.add(tensor.untyped_storage().data_ptr())
    # One entry: safetensors writes several in any order, and equal runs are to have equal files.
    entry = json.dumps({**(metadata or {}), "checksum": checksum(own, metadata)})
    with replacing(path, previous) as temporary:
        temporary.write_bytes(save(own, {ENTRY: entry}))


def read_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, and its metadata. A file that is not as it was written is a ValueError."""
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
    """What was written with the tensors of a safetensors file, and their checksum."""
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
    if metadata and not (isinstance(entry, dict) and "method" in entry):  # version 0.1.0 wrote this one, or nothing
        raise ValueError("its metadata has changed since it was written")
    return metadata


def checksum(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    """Eight letters that change with any bit of the tensors, their names, shapes and types, or the metadata."""
    import torch

    total = zlib.crc32(repr(sorted((metadata or {}).items())).encode())
    for name, tensor in sorted(tensors.items()):
        total = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(), total)
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        total = zlib.crc32(content.numpy().data, total)
    return f"{total:08x}"


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
