"""`fedmim data`: list the data sets, or fetch one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from fedmim.data.catalogue import fetch, known
from fedmim.data.descriptor import data_directory
from fedmim.errors import UserError
from fedmim.flags import parse

ABOUT_DATA = (
    "List the data sets and what is found of them; `fedmim data fetch NAME` downloads one from its official address."
)


@dataclass(frozen=True)
class DataOptions:
    """The flags of the command."""

    words: Positional[Sequence[str]] = ()
    """Nothing to list the data sets; `fetch NAME` to download one."""
    data_dir: str | None = None
    """The folder with the data sets; none: $FEDMIM_DATA, else ./data."""


def data(argv: list[str]) -> None:
    """List the data sets, or fetch one."""
    options = parse("fedmim data", ABOUT_DATA, argv, {"data": DataOptions()}).values["data"]
    words, folder = options["words"], options["data_dir"]
    if not words:
        print_data(folder)
    elif words[0] == "fetch" and len(words) == 2:
        print(f"{words[1]} is in {fetch(words[1], folder)}")
    else:
        raise UserError("data: write `fedmim data` or `fedmim data fetch NAME`")


def print_data(folder: str | None) -> None:
    """A line for each data set: what it is, and whether it is found."""
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
