"""Sizes are checked before anything is allocated: how much memory there is, and the error for what does not fit."""

from __future__ import annotations

import os
from pathlib import Path

from fedmim.errors import UserError

_CGROUP = Path("/sys/fs/cgroup")  # version 2, as containers have it
_MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """The bytes that this process can still get without swapping; None where the system does not say."""
    found = [size for size in (_of_machine(), _of_container()) if size is not None]
    return min(found, default=None)


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raise UserError if `what` needs more bytes than there are. `what` names the setting, `remedy` the way out."""
    available = available_memory()
    if available is not None and needed > available:
        raise UserError(
            f"{what} needs about {_gigabytes(needed)} of memory, and {_gigabytes(available)} are available: {remedy}"
        )


def _gigabytes(size: int) -> str:
    return f"{size // 10**9:,} GB" if size >= 10**10 else f"{size / 1e9:.1f} GB"


def _of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):  # not Linux: all memory that is built in, if the system tells
        names = getattr(os, "sysconf_names", {})
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in names else None


def _of_container() -> int | None:
    try:
        limit, used = ((_CGROUP / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # ValueError: the limit is "max"
        return None
