"""Listings on the terminal: the methods, and the data sets."""

from __future__ import annotations

import inspect
from dataclasses import fields

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedmim.algorithms import Algorithm
from fedmim.flags import show_options
from fedmim.report.style import colour_of


def print_methods(known: dict[str, type[Algorithm]]) -> None:
    """A line for each method and its options."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("method", "what it does", "options"):
        table.add_column(heading, overflow="fold")
    for name, kind in known.items():
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


def print_data(folder: str | None) -> None:
    """A line for each data set: what it is, and whether it is found."""
    from fedmim.data import data_directory, known

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("data", "what it is", "found"):
        table.add_column(heading, overflow="fold")
    for each in known(folder):
        data = each.descriptor
        sizes = f"\n{data.train_size:,} + {data.test_size:,} samples, {data.classes} classes" if data.classes else ""
        if each.found is not None:
            found = Text(str(each.found), style="green")
        elif each.problem and (data_directory(folder) / data.folder).exists():
            found = Text(each.problem.removeprefix(f"{each.name}: "), style="yellow")
        elif each.problem:
            found = Text(f"no: `fedmim data fetch {each.name}`", style="dim")
        else:
            found = Text("needs no download" if data.classes else "", style="green")
        table.add_row(each.name, data.description + sizes, found)
    Console().print(table)
