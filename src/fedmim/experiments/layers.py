"""Layers of settings: the data set's defaults, then a TOML file, then command-line flags, then a method's own.

data = "cifar10"            # any setting, for all methods
rounds = 300
methods = ["fedavg", "fedmim"]
seeds = [0, 1, 2]

[fedmim]                    # for one method: its hyper-parameters and any setting
alpha = [0.9]
lr = 1.0

[[variants]]                # several of one method
method = "fedmim"
label = "two steps"
alpha = [0.6, 0.3]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmim.algorithms import METHODS, PAPER
from fedmim.errors import UserError, unknown
from fedmim.experiments.compare import Comparison
from fedmim.experiments.config import defaults, read_toml, target_of
from fedmim.experiments.methods import Run, label_all, parse_list

RUN_KEYS = ("method", "label")
COMPARE_KEYS = ("methods", "seeds", "target", "variants")


@dataclass(frozen=True)
class File:
    """A TOML file of settings, or nothing."""

    path: str = "settings"
    settings: dict[str, Any] = field(default_factory=dict)  # for all methods
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)  # for one method each
    command: dict[str, Any] = field(default_factory=dict)  # what the command does with them

    @classmethod
    def read(cls, path: str | None) -> File:
        """Read and sort a file's settings; a name that means nothing is an error."""
        if path is None:
            return cls()
        settings, tables, command = {}, {}, {}
        known = defaults("digits")
        for name, value in read_toml(Path(path)).items():
            if name in RUN_KEYS + COMPARE_KEYS:
                command[name] = value
            elif isinstance(value, dict) and (name in METHODS or ":" in name):
                tables[name] = value
            elif name in known:
                settings[name] = value
            else:
                raise unknown(f"{path}: setting", name, [*known, *RUN_KEYS, *COMPARE_KEYS, *METHODS])
        return cls(path, settings, tables, command)

    def values(self, method: str | None, data: str | None) -> dict[str, Any]:
        """All settings below the flags; `data`, where a flag names it, decides the defaults."""
        settings = {**self.settings, **self.tables.get(method or "", {})}
        return defaults(data or settings.get("data", "digits")) | settings | ({"data": data} if data else {})

    def entries(self) -> list[tuple[str, dict[str, Any]]]:
        """The methods to compare, each with settings of its own; those of the paper unless told."""
        listed, variants = self.command.get("methods", []), self.command.get("variants", [])
        if not (isinstance(listed, list) and all(isinstance(name, str) for name in listed)):
            raise UserError(f"{self.path}: methods must be a list of names, got {listed!r}")
        entries = [entry for name in listed for entry in parse_list(name)]
        for variant in variants:
            if not isinstance(variant, dict) or not isinstance(variant.get("method"), str):
                raise UserError(f"{self.path}: each of [[variants]] must name its method")
            entries.append((variant["method"], {n: v for n, v in variant.items() if n != "method"}))
        return entries or [(name, {}) for name in PAPER]


def comparison(
    file: File,
    entries: list[tuple[str, dict[str, Any]]],
    flags: dict[str, Any],
    method_flags: dict[str, dict[str, Any]],
    seeds: tuple[int, ...],
    target: float | None,
) -> Comparison:
    """A comparison of these entries; flags (only those that were given) win over the file, an entry's own over all."""
    runs = []
    for (method, own), label in zip(entries, label_all(entries), strict=True):
        values = file.values(method, flags.get("data")) | flags | method_flags.get(method, {})
        values |= {name: value for name, value in own.items() if name != "label"}
        runs.append(Run.make(method, values, label, where=label))
    target = target if target is not None else target_of(runs[0].config.data)
    return Comparison(tuple(runs), seeds, target)
