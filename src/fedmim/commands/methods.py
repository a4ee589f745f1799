"""`fedmim methods`: list the methods, or show one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tyro.conf import Positional

from fedmim.algorithms import METHODS
from fedmim.errors import UserError
from fedmim.experiments.methods import find_method
from fedmim.flags import parse
from fedmim.report.listing import print_method, print_methods

ABOUT = "List the methods with their options and references, or show one with its formula."


@dataclass(frozen=True)
class MethodsOptions:
    """The flags of the command."""

    name: Positional[Sequence[str]] = ()
    """Which method; file.py:ClassName for your own."""


def methods(argv: list[str]) -> None:
    """List the methods, or show one."""
    names = parse("fedmim methods", ABOUT, argv, {"methods": MethodsOptions()}).values["methods"]["name"]
    if len(names) > 1:
        raise UserError(f"methods: show one at a time, got {' '.join(names)}")
    if names:
        print_method(names[0], find_method(names[0]))
    else:
        print_methods(METHODS)
