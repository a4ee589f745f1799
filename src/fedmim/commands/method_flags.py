"""Flags of one method's hyper-parameters: --name for its own, --leap.name and --sharp.name for what is around it."""

from __future__ import annotations

from typing import Any

from fedmim.algorithms import WRAPPERS, Algorithm
from fedmim.experiments.methods import layers
from fedmim.flags import Flags

WITHOUT = {name: ["inner"] for name in WRAPPERS}  # the method inside is no flag


def method_parts(algorithm: Algorithm) -> dict[str, Algorithm]:
    """The parts of `flags.parse` that read them; those around the method are `prefixed`."""
    return {layer or "method": each for layer, each in layers(algorithm).items()}


def method_values(flags: Flags) -> dict[str, Any]:
    """All hyper-parameters."""
    around = {name: flags.values[name] for name in WRAPPERS if name in flags.values}
    return flags.values["method"] | _with_prefix(around)


def given_method_values(flags: Flags) -> dict[str, Any]:
    """The hyper-parameters that were given."""
    around = {name: flags.changes(name, prefixed=True) for name in WRAPPERS if name in flags.values}
    return flags.changes("method") | _with_prefix(around)


def _with_prefix(around: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {f"{part}.{name}": value for part, values in around.items() for name, value in values.items()}
