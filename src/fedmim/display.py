"""What people see: a line that is updated in place, small HTML tables for notebooks, and short reprs."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

UPDATE_SECONDS = 0.25  # seconds between two updates


class LiveLine:
    """One line that is updated in place, on a terminal or in a notebook; the last text stays. Elsewhere nothing.

    Nothing is shown before `after` seconds. No thread is started, so the line changes only when `show` is called.
    """

    def __init__(self, after: float = 0.0, console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True)
        self._visible = self._console.is_jupyter or self._console.is_interactive
        self._due = time.monotonic() + after
        self._text = ""
        self._update: Callable[[str], Any] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(self, *error: object) -> None:
        with self._stack:
            if self._update is not None:
                self._update(self._text)

    def show(self, text: str) -> None:
        """Set the text. It is shown at once, or with a later one if the last update was a moment ago."""
        self._text = text
        moment = time.monotonic()
        if not self._visible or moment < self._due:
            return
        self._due = moment + UPDATE_SECONDS
        if self._update is None:
            self._update = self._in_notebook() if self._console.is_jupyter else self._on_terminal()
        self._update(text)

    def _on_terminal(self) -> Callable[[str], Any]:
        from rich.live import Live
        from rich.text import Text

        # Rich prints redirected output to the console, which is stderr: a redirected stdout must stay as it is.
        live = Live(console=self._console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
        self._stack.enter_context(live)
        return lambda text: live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def _in_notebook(self) -> Callable[[str], Any]:
        from IPython.display import display

        # Rich would need ipywidgets. An output with an id is replaced, and a notebook stores only its last state.
        shown = display({"text/plain": self._text}, raw=True, display_id=True)
        return lambda text: shown.update({"text/plain": text}, raw=True)


def html_table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A table for `_repr_html_`."""
    lines = [_cells("th", header), *(_cells("td", row) for row in rows)]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def changed_fields(part: Any) -> dict[str, Any]:
    """The fields of a dataclass whose values are not the defaults."""
    values = {each.name: (getattr(part, each.name), each.default) for each in fields(part)}
    return {name: value for name, (value, default) in values.items() if value != default}


def short_repr(part: Any, show: Callable[[Any], str] = repr) -> str:
    """A dataclass as in Python, without the fields that have their default; `show` formats the values."""
    shown = [f"{name}={show(value)}" for name, value in changed_fields(part).items()]
    return f"{type(part).__name__}({', '.join(shown)})"


def _cells(tag: str, values: Sequence[Any]) -> str:
    return "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)
