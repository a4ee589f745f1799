"""Check sizes before allocating: the available memory, and the error if something does not fit."""

from __future__ import annotations

import os
from pathlib import Path

from fedmim.errors import UserError

_CGROUP = Path("/sys/fs/cgroup")  # cgroup version 2, as in containers
_MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """The memory in bytes that this process can still use without swapping; None if unknown."""
    found = [size for size in (_of_machine(), _of_container()) if size is not None]
    return min(found, default=None)


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raise UserError if `what` needs more bytes than available. `what` starts with the name of the setting."""
    available = available_memory()
    if available is not None and needed > available:
        raise UserError(
            f"{what} needs about {in_words(needed)} of memory, but {in_words(available)} are available: {remedy}"
        )


def in_words(size: int) -> str:
    """A size in bytes for people."""
    if size >= 10**10:
        return f"{size // 10**9:,} GB"  # an integer, which may be too large for a float
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"


def _of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):  # not Linux: the physical memory, if known
        names = getattr(os, "sysconf_names", {})
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in names else None


def _of_container() -> int | None:
    try:
        limit, used = ((_CGROUP / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # ValueError: the limit is "max"
        return None
