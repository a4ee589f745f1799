"""Inject faults into the file operations of a process in one folder: the n-th operation fails or kills the process.

Counted operations: open for writing, write, fsync, rename, mkdir, and with kills also remove. A write with a fault
stops half-way. Only Python's file functions are covered; fedmim, Optuna, Pillow and matplotlib use no others.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
KILL = -1  # instead of an errno


@dataclass
class Faults:
    """The n-th operation in the folder raises the error, or with KILL ends the process."""

    folder: Path
    number: int
    error: int
    seen: int = 0

    def install(self) -> None:
        """Replace the file functions of this process permanently."""
        own = FaultyFile, self
        builtins.open = io.open = lambda *words, **named: opened(*own, *words, **named)  # type: ignore[assignment]
        for name in ("replace", "rename", "mkdir"):
            setattr(os, name, self._checked(getattr(os, name), lambda words: words[0]))
        for name in ("unlink", "remove", "rmdir"):
            setattr(os, name, self._checked(getattr(os, name), lambda words: words[0], removes=True))
        os.fsync = self._checked(os.fsync, lambda words: f"/proc/self/fd/{words[0]}")  # type: ignore[assignment]
        os.open = self._checked(os.open, lambda words: words[0] if words[1] & WRITING else "/")  # type: ignore[assignment]

    def _checked(self, function: Callable[..., Any], place: Callable[[Any], Any], removes: bool = False) -> Any:
        def checked(*words: Any, **named: Any) -> Any:
            if not (removes and self.error not in (KILL, errno.EROFS)):  # removing works on a full disk
                self.check(place(words))
            return function(*words, **named)

        return checked

    def hit(self, place: Any) -> bool:
        """Count an operation and return whether it fails. A full or read-only disk stays so; EIO occurs once."""
        path = os.path.realpath(place) if not isinstance(place, int) else os.path.realpath(f"/proc/self/fd/{place}")
        if not path.startswith(f"{self.folder}{os.sep}") and path != str(self.folder):
            return False
        self.seen += 1
        return self.seen == self.number or (self.seen > self.number and self.error not in (KILL, errno.EIO))

    def check(self, place: Any) -> None:
        """Count an operation and fail if it is its turn."""
        if self.hit(place):
            self.fail(place)

    def fail(self, place: Any) -> None:
        """Kill the process or raise the error."""
        if self.error == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        named = [str(place)] if isinstance(place, str | os.PathLike) and not str(place).startswith("/proc/") else []
        raise OSError(self.error, os.strerror(self.error), *named)  # as the system does: a handle has no name


class FaultyFile(io.FileIO):
    """A file that counts its writes."""

    faults: Faults

    def write(self, content: Any) -> int:
        """Write the content, or half of it if there is a fault."""
        if not self.faults.hit(self.fileno()):
            return super().write(content)
        super().write(bytes(content)[: len(content) // 2])
        self.faults.fail(self.fileno())
        raise AssertionError


def opened(  # the signature of open
    kind: type[FaultyFile],
    faults: Faults,
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """`open` that counts writes to the files."""
    if not set(mode) & set("wax+") or isinstance(file, int):
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    faults.check(file)
    raw = kind(file, mode.replace("b", "").replace("t", ""), closefd, opener)
    raw.faults = faults
    if buffering == 0:
        return raw
    buffered: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    if "b" in mode:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]
    return text


_open = io.open
