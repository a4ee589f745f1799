"""Settings from several sources. Precedence, lowest to highest: the defaults of the data set, a TOML file,
command-line flags, the settings of a single variant.

data = "cifar10"            # any setting, for all methods
rounds = 300
methods = ["fedavg", "fedmim"]
seeds = [0, 1, 2]

[fedmim]                    # for one method: hyper-parameters and any other setting
alpha = [0.9]
lr = 1.0

[[variants]]                # several variants of one method
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
from fedmim.experiments.comparison import Comparison
from fedmim.experiments.config import DEFAULT_DATA, PART_OF, defaults, target_of
from fedmim.experiments.methods import Variant, flattened, is_built_in, label_all, parse_list
from fedmim.experiments.run import Run
from fedmim.experiments.toml_values import read_toml

RUN_KEYS = ("method", "label")
COMPARE_KEYS = ("methods", "seeds", "target", "variants")
DEMO = Path(__file__).parent / "demo.toml"  # what `fedmim compare` trains without --data, --methods and --config


@dataclass(frozen=True)
class ConfigFile:
    """The settings in a TOML file; empty without a file."""

    path: str = "settings"
    settings: dict[str, Any] = field(default_factory=dict)  # for all methods
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)  # for one method each
    command: dict[str, Any] = field(default_factory=dict)  # methods, seeds and other options of the command

    @classmethod
    def read(cls, path: str | None) -> ConfigFile:
        """Read a file. Unknown names raise UserError."""
        if path is None:
            return cls()
        settings, tables, command = {}, {}, {}
        for name, value in read_toml(Path(path)).items():
            if name in RUN_KEYS + COMPARE_KEYS:
                command[name] = value
            elif isinstance(value, dict) and (is_built_in(name) or ":" in name):
                tables[name] = flattened(value)
            elif name in PART_OF:
                settings[name] = value
            else:
                raise unknown(f"{path}: setting", name, [*PART_OF, *RUN_KEYS, *COMPARE_KEYS, *METHODS])
        file = cls(path, settings, tables, command)
        for check in (file.seeds, file.target, file.label):  # also if the command does not use them
            check()
        return file

    def values(self, method: str | None, data: str | None) -> dict[str, Any]:
        """All settings except the flags. `data`, if given as a flag, selects the defaults."""
        settings = {**self.settings, **self.tables.get(method or "", {})}
        named = data or settings.get("data", DEFAULT_DATA)
        if not isinstance(named, str):
            raise UserError(f"{self.path}: data must be a string, got {named!r}")
        return defaults(named) | settings | ({"data": data} if data else {})

    def seeds(self) -> tuple[int, ...]:
        """The seeds to run each method with; default: 0."""
        listed = self.command.get("seeds", [0])
        if not (isinstance(listed, list) and all(type(seed) is int and seed >= 0 for seed in listed)):
            raise UserError(f"{self.path}: seeds must be a list of whole numbers of at least 0, got {listed!r}")
        return tuple(listed)

    def target(self) -> float | None:
        """The target accuracy, if the file has one."""
        target = self.command.get("target")
        if target is not None and type(target) not in (int, float):
            raise UserError(f"{self.path}: target must be a number, got {target!r}")
        return target

    def method(self, usual: str) -> str:
        """The method that `fedmim run` trains."""
        method = self.command.get("method", usual)
        if not isinstance(method, str):
            raise UserError(f"{self.path}: method must be a string, got {method!r}")
        return method

    def label(self) -> str | None:
        """The label of the run for `fedmim run`, if the file has one."""
        label = self.command.get("label")
        if label is not None and not isinstance(label, str):
            raise UserError(f"{self.path}: label must be a string, got {label!r}")
        return label

    def variants(self) -> list[Variant]:
        """The methods to compare, with the settings of each; default: the methods of the paper."""
        listed, variants = self.command.get("methods", []), self.command.get("variants", [])
        if not (isinstance(listed, list) and all(isinstance(name, str) for name in listed)):
            raise UserError(f"{self.path}: methods must be a list of names, got {listed!r}")
        if not isinstance(variants, list):
            raise UserError(f"{self.path}: variants must be tables, written as [[variants]]")
        found = [variant for name in listed for variant in parse_list(name)]
        for variant in variants:
            if not isinstance(variant, dict) or not isinstance(variant.get("method"), str):
                raise UserError(f"{self.path}: each entry of [[variants]] must have a method")
            found.append((variant["method"], flattened({n: v for n, v in variant.items() if n != "method"})))
        return found or [(name, {}) for name in PAPER]


def new_comparison(
    file: ConfigFile,
    variants: list[Variant],
    flags: dict[str, Any],
    method_flags: dict[str, dict[str, Any]],
    seeds: tuple[int, ...],
    target: float | None,
) -> Comparison:
    """A comparison of these variants. Precedence, lowest to highest: file, given flags, settings of a variant."""
    runs = []
    for (method, own), label in zip(variants, label_all(variants), strict=True):
        values = file.values(method, flags.get("data")) | flags | method_flags.get(method, {})
        values |= {name: value for name, value in own.items() if name != "label"}
        runs.append(Run.make(method, values, label, where=label))
    if target is None:
        target = target_of(runs[0].config.problem.data)
    return Comparison(tuple(runs), seeds, target)


def added_runs(runs: list[Run], variants: list[Variant], method_flags: dict[str, dict[str, Any]]) -> list[Run]:
    """Runs of additional variants, with the settings that all existing runs share."""
    configs = [run.config.plain() for run in runs]
    shared = {name: value for name, value in configs[0].items() if all(each[name] == value for each in configs)}
    base, labels = defaults(runs[0].config.problem.data) | shared, [run.label for run in runs]
    added = []
    for (method, own), label in zip(variants, label_all(variants), strict=True):
        if label not in labels:
            values = base | method_flags.get(method, {}) | {name: own[name] for name in own if name != "label"}
            added.append(Run.make(method, values, label, where=label))
    return added
