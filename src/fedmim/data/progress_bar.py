"""A progress bar for work that takes seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Step = TypeVar("Step")
LONG = 2000
"""From this many files on, a progress bar is shown."""


def with_progress_bar(steps: Iterable[Step], total: int, what: str) -> Iterable[Step]:
    """The steps as they are; where there are many, a progress bar on stderr follows them."""
    if total < LONG:
        return steps
    from rich.console import Console
    from rich.progress import track

    return track(steps, what, total=total, console=Console(stderr=True), transient=True)
