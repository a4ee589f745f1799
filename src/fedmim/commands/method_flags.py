"""Flags for the hyper-parameters of one method: --name, or --leap.name and --sharp.name for its wrappers."""

from __future__ import annotations

from typing import Any

from fedmim.algorithms import WRAPPERS, Algorithm
from fedmim.experiments.methods import layers
from fedmim.flags import Flags

WITHOUT = {name: ["inner"] for name in WRAPPERS}  # the wrapped method is not a flag


def method_parts(algorithm: Algorithm) -> dict[str, Algorithm]:
    """The parts for `flags.parse`. Those of wrappers are `prefixed`."""
    return {layer or "method": each for layer, each in layers(algorithm).items()}


def method_values(flags: Flags) -> dict[str, Any]:
    """All hyper-parameters, by their flat names."""
    around = {name: flags.values[name] for name in WRAPPERS if name in flags.values}
    return flags.values["method"] | _with_prefix(around)


def given_method_values(flags: Flags) -> dict[str, Any]:
    """The hyper-parameters given on the command line."""
    around = {name: flags.changes(name, prefixed=True) for name in WRAPPERS if name in flags.values}
    return flags.changes("method") | _with_prefix(around)


def _with_prefix(around: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {f"{part}.{name}": value for part, values in around.items() for name, value in values.items()}
