"""Saying what is being done: one live line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

LINE_SECONDS = 5.0


@contextmanager
def telling(console: Console) -> Iterator[Callable[[str], None]]:
    """A function to tell it to."""
    if console.is_terminal:
        with console.status("") as status:
            yield lambda what: status.update(what)
        return
    last = 0.0

    def line(what: str) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            console.print(what, markup=False, highlight=False)

    yield line
