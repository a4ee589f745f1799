"""Mistakes of the user, as one clear line that names the setting or the file, and the remedy."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 2000  # letters of a message


class UserError(ValueError):
    """Something asked for that cannot be done; the command line prints it without a traceback.

    The message is one line that a terminal can show, whatever the values it quotes.
    """

    def __init__(self, message: str) -> None:
        line = " ".join(message.splitlines())
        if len(line) > LONGEST:
            line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line))


class BusyError(UserError):
    """Another process is at work there."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not known, with the nearest one that is."""
    names, name = list(known), name if len(name) <= 200 else f"{name[:200]}..."
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"{kind}: {name!r} is not known; {hint}Known: {', '.join(names)}.")
