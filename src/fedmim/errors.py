"""Mistakes of the user, as one clear line that names the setting or the file, and the remedy."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Something asked for that cannot be done; the command line prints it without a traceback."""


class BusyError(UserError):
    """Another process is at work there."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not known, with the nearest one that is."""
    names = list(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"{kind}: {name!r} is not known; {hint}Known: {', '.join(names)}.")
