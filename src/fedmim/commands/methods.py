"""`fedmim methods`: list the methods, or show one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from fedmim.algorithms import METHODS, Algorithm
from fedmim.errors import UserError
from fedmim.experiments.methods import find_method
from fedmim.flags import parse, show_options
from fedmim.report.style import colour_of

ABOUT_METHODS = "List the methods with their options and references, or show one with its formula."


@dataclass(frozen=True)
class MethodsOptions:
    """The flags of the command."""

    name: Positional[Sequence[str]] = ()
    """Which method; file.py:ClassName for your own."""


def methods(argv: list[str]) -> None:
    """List the methods, or show one."""
    names = parse("fedmim methods", ABOUT_METHODS, argv, {"methods": MethodsOptions()}).values["methods"]["name"]
    if len(names) > 1:
        raise UserError(f"methods: show one at a time, got {' '.join(names)}")
    if names:
        print_method(names[0], find_method(names[0]))
    else:
        print_methods()


def print_methods() -> None:
    """A line for each method and its options."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("method", "what it does", "options"):
        table.add_column(heading, overflow="fold")
    for name, kind in METHODS.items():
        options = "\n".join(f"--{each.name} {_shown(each.default)}" for each in fields(kind))
        what = "\n".join(dict.fromkeys([_doc(kind)[0], _doc(kind)[-1]]))  # the summary and the reference
        table.add_row(Text(name, style=colour_of(name)), Text(what), Text(options))
    console = Console()
    console.print(table)
    console.print("`fedmim methods NAME` shows the formula and all options of one.", style="dim", highlight=False)


def print_method(name: str, kind: type[Algorithm]) -> None:
    """One method: formula, reference, options."""
    print(f"{name}: {kind.title}\n")
    print(inspect.cleandoc(kind.__doc__ or "(no description)"))
    if fields(kind):
        show_options(kind)


def _doc(kind: type[Algorithm]) -> list[str]:
    """The paragraphs of the docstring, each as one line."""
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs]


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
