"""A progress bar for work that takes seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Step = TypeVar("Step")
LONG = 2000
"""Show a progress bar for at least this many files."""


def with_progress_bar(steps: Iterable[Step], total: int, what: str) -> Iterable[Step]:
    """The same steps; if there are many, with a progress bar on stderr."""
    if total < LONG:
        return steps
    from rich.console import Console
    from rich.progress import track

    return track(steps, what, total=total, console=Console(stderr=True), transient=True)
