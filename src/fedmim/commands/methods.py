"""`fedmim methods`: list the methods, or describe one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from fedmim.algorithms import GROUPS, REFERENCES, WRAPPERS, Algorithm
from fedmim.errors import UserError
from fedmim.experiments.methods import layers, make_method, method_name, split_name
from fedmim.flags import parse, show_options
from fedmim.report.style import colour_of

ABOUT_METHODS = "List all methods, or describe one: its formula, reference and options."

WRAPPER_COSTS = {  # what a wrapper changes
    ("sharp", "gradients"): "+1",
    ("topk", "up"): "less",
    ("topk", "state"): "+d",
    ("quantise", "up"): "less",
}


@dataclass(frozen=True)
class MethodsOptions:
    """The options of the command."""

    name: Positional[Sequence[str]] = ()
    """The method to describe: a name, file.py:ClassName for your own, or NAME+leap, NAME+sharp, NAME+topk or
    NAME+quantise with a wrapper."""


def methods(argv: list[str]) -> None:
    """List the methods, or describe one."""
    names = parse("fedmim methods", ABOUT_METHODS, argv, {"methods": MethodsOptions()}).values["methods"]["name"]
    if len(names) > 1:
        raise UserError(f"methods: give one method at a time, got {' '.join(names)}")
    if names:
        print_method(names[0])
    else:
        print_methods()


def print_methods() -> None:
    """Print the methods by group, with a description and the costs per local step and round."""
    from fedmim.simulation.wire import Wire

    console = Console()
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("method", "description", "gradients", "down", "up", "state"):
        table.add_column(heading, justify="left" if heading in ("method", "description") else "right")
    for group, kinds in {**GROUPS, "references": tuple(REFERENCES.values())}.items():
        table.add_row(Text(group, style="italic"))
        for kind in kinds:
            method = kind()
            wire, name = Wire.of_vectors(method), method_name(method)
            sent = [{}, {}] if method.reference else [wire.down, wire.upload]
            costs = [str(kind.gradients), *map(_vectors, (*sent, wire.slots))]
            table.add_row(Text(f"  {name}", style=colour_of(name)), Text(_doc(kind)[0]), *costs)
    table.add_row(Text("wrappers for any method", style="italic"))
    for suffix, wrapper in WRAPPERS.items():
        costs = [WRAPPER_COSTS.get((suffix, each), "same") for each in ("gradients", "down", "up", "state")]
        table.add_row(f"  NAME+{suffix}", Text(_doc(wrapper)[0]), *costs)
    console.print(table)
    console.print(
        "gradients: gradients per local step. down, up: what a client receives and sends per round; d is the size of "
        "the model. state: what a client keeps between rounds. `fedmim methods NAME` shows the formula, the reference "
        "and all options of a method, for example `fedmim methods feddyn+leap`.",
        style="dim",
        highlight=False,
    )


def print_method(name: str) -> None:
    """Print the formula, reference and options of a method, then those of its wrappers."""
    algorithm, _ = make_method(name, {}, name)
    for layer, each in layers(algorithm).items():
        print(f"\n+{layer}, with options --{layer}.NAME\n" if layer else f"{split_name(name)[0]}: {each.title}\n")
        print(inspect.cleandoc(type(each).__doc__ or "(no description)"))
        left_out = ["inner"] if layer else []
        if len(fields(each)) > len(left_out):
            show_options(each, left_out)


def _vectors(sizes: dict[str, int]) -> str:
    """The number of vectors of the size of the model, as text."""
    return {0: "-", 1: "d"}.get(len(sizes), f"{len(sizes)}d")


def _doc(kind: type[Algorithm]) -> list[str]:
    """The paragraphs of a docstring, each as one line."""
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs]
