"""User errors: one clear line that names the setting or file and the remedy."""

import warnings
from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 2000  # characters in a message


class UserError(ValueError):
    """A request that cannot be fulfilled; the command line prints it without a traceback.

    The message is reduced to one printable line.
    """

    def __init__(self, message: str) -> None:
        line = " ".join(message.splitlines())
        if len(line) > LONGEST:
            line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line))

    exit_code = 2


class BusyError(UserError):
    """Another process is using the folder."""


class DivergedError(UserError):
    """A run has diverged: see `fedmim.divergence`."""

    exit_code = 3


def warn_user(text: str) -> None:
    """Warn the user even if the same text was shown before; `warnings.warn` would suppress it."""
    warnings.warn_explicit(text, UserWarning, filename="fedmim", lineno=0)


def check_type(name: str, value: object, kind: type, wanted: str) -> None:
    """Reject an argument of another type; `wanted` is an example of the right one."""
    if not isinstance(value, kind):
        got = f"the class {value.__name__}" if isinstance(value, type) else f"{type(value).__name__} {value!r:.60}"
        raise UserError(f"{name}: must be {wanted}, got {got}")


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name, with the closest known one."""
    names, name = list(known), name if len(name) <= 200 else f"{name[:200]}..."
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"{kind}: {name!r} is not known; {hint}Known: {', '.join(names)}.")
