"""`fedmim data`: list the data sets, or download one."""

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
    "List the data sets and where they are found. `fedmim data fetch NAME` downloads one from its official site, "
    "or says how to create it."
)


@dataclass(frozen=True)
class DataOptions:
    """The options of the command."""

    words: Positional[Sequence[str]] = ()
    """`fetch NAME` downloads a data set. Without arguments, the data sets are listed."""
    data_dir: str | None = None
    """Folder with the data sets; default: $FEDMIM_DATA, or ./data if it is not set."""


def data(argv: list[str]) -> None:
    """List the data sets, or download one."""
    options = parse("fedmim data", ABOUT_DATA, argv, {"data": DataOptions()}).values["data"]
    words, folder = options["words"], options["data_dir"]
    if not words:
        print_data(folder)
    elif words[0] == "fetch" and len(words) == 2:
        print(f"{words[1]} is in {fetch(words[1], folder)}")
    else:
        raise UserError("data: use `fedmim data` or `fedmim data fetch NAME`")


def print_data(folder: str | None) -> None:
    """Print one line per data set: a description, and where it was found."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("data", "description", "found"):
        table.add_column(heading, overflow="fold")
    for each in known(folder):
        data = each.descriptor
        sizes = f"{data.train_size:,} + {data.test_size:,} samples, " if data.train_size else ""
        sizes = f"\n{sizes}{data.classes} classes" if data.classes else ""
        if each.found is not None:
            found = Text(str(each.found), style="green")
        elif each.problem and (data_directory(folder) / data.folder).exists():
            found = Text(each.problem.removeprefix(f"{each.name}: "), style="yellow")
        elif each.problem:
            how = "says how to create it" if data.script else "downloads it"
            found = Text(f"no; `fedmim data fetch {each.name}` {how}", style="dim")
        else:
            found = Text("no download needed" if data.classes else "", style="green")
        table.add_row(each.name, data.description + sizes, found)
    Console().print(table)
