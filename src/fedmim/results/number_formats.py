"""Format numbers for people."""

from __future__ import annotations

from collections.abc import Sequence


def percent(part: float) -> str:
    """A fraction in percent: 0.1 gives 10%."""
    return f"{100 * part:.4g}%"


def byte_size(count: float) -> str:
    """Bytes with a suitable unit: 38.5 MB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def duration(seconds: float) -> str:
    """Seconds in the two largest units: 42 s, 3 min 10 s, 2 h 5 min, 2 d 3 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    hours = whole // 3600
    return f"{hours} h {whole % 3600 // 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def clock(seconds: float) -> str:
    """Seconds in the short form of a clock: 0:42, 3:10, 2:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def listed(names: Sequence[str]) -> str:
    """A list in words: a, b and c. Of more than ten names, the first nine and the number of the others."""
    names = names if len(names) <= 10 else [*names[:9], f"{len(names) - 9} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
