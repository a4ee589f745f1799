"""The one exception of this room: data that is missing, damaged or asked for by a name that nobody knows."""

from __future__ import annotations

from collections.abc import Sequence


class DataError(ValueError):
    """A problem with data that the user can mend: one line that names the file or setting and the remedy."""


def unknown(kind: str, name: str, known: Sequence[str]) -> DataError:
    """The error for a name that is not among `known`, with the nearest one where any is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    return DataError(f"unknown {kind} {name!r}{hint} known: {', '.join(known)}")
