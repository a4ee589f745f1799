"""`fedmim data`: list the data sets, or fetch one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tyro.conf import Positional

from fedmim.errors import UserError
from fedmim.flags import parse

ABOUT = (
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
    options = parse("fedmim data", ABOUT, argv, {"data": DataOptions()}).values["data"]
    words, folder = options["words"], options["data_dir"]
    if not words:
        from fedmim.report.listing import print_data

        print_data(folder)
    elif words[0] == "fetch" and len(words) == 2:
        from fedmim.data import fetch

        print(f"{words[1]} is in {fetch(words[1], folder)}")
    else:
        raise UserError("data: write `fedmim data` or `fedmim data fetch NAME`")
