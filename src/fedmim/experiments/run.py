"""A run: one method with its hyper-parameters, a configuration, and a label."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedmim.algorithms import METHODS, Algorithm
from fedmim.display import changed_fields
from fedmim.errors import UserError
from fedmim.experiments.config import PART_OF, Config, pinned
from fedmim.experiments.methods import (
    flattened,
    hyper_parameter_values,
    hyper_parameters,
    is_built_in,
    layers,
    make_method,
    split_name,
)
from fedmim.experiments.own_code import OwnCode
from fedmim.experiments.sources import IN_MEMORY
from fedmim.simulation.stopping import stop_reason


@dataclass(frozen=True)
class RecordedMethod(Algorithm):
    """A user's own method as read from a file: name and hyper-parameters, without its code."""

    title: str = ""  # type: ignore[misc]  # of one method, not of a class
    hyper_parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Run:
    """One run of a method: the content of config.toml in a run folder."""

    method: str  # fedmim, ..., or file.py:ClassName for a user's own
    algorithm: Algorithm
    config: Config
    label: str

    @classmethod
    def make(
        cls,
        method: str,
        values: dict[str, Any],
        label: str | None = None,
        where: str | None = None,
        kind: type[Algorithm] | None = None,
    ) -> Run:
        """Build from flat plain values: fields of the method are hyper-parameters, all others are settings.

        The files of the user's own data and model must exist. `kind` is the class of a method given in Python.
        """
        return cls._make(method, pinned(values), label, where or method, kind)

    @classmethod
    def _make(
        cls, method: str, values: dict[str, Any], label: str | None, where: str, kind: type[Algorithm] | None = None
    ) -> Run:
        algorithm, rest = make_method(method, values, where, kind)
        base, around = split_name(method)
        if base not in METHODS and not kind:  # absolute, so that the run can be resumed from any directory
            file, _, name = base.rpartition(":")
            base = f"{Path(file).resolve()}:{name}"
        return cls("+".join([base, *around]), algorithm, Config.of(rest, where), label or algorithm.title)

    def replace(self, **changes: Any) -> Run:
        """A copy with some fields of the configuration changed, by their flat names."""
        return replace(self, config=self.config.replace(**changes))

    def plain(self) -> dict[str, Any]:
        """Configuration and hyper-parameters as flat TOML values."""
        return self.config.plain() | self.hyper_parameters()

    def hyper_parameters(self) -> dict[str, Any]:
        """The hyper-parameters of the method as TOML values."""
        if isinstance(self.algorithm, RecordedMethod):
            return dict(self.algorithm.hyper_parameters)
        return hyper_parameters(self.algorithm)

    def hyper_parameter_values(self) -> dict[str, Any]:
        """The hyper-parameters as Python values: None instead of "none". The types of a recorded method are unknown."""
        if isinstance(self.algorithm, RecordedMethod):
            return {name: None if value == "none" else value for name, value in self.algorithm.hyper_parameters}
        return hyper_parameter_values(self.algorithm)

    def to_toml(self) -> str:
        """TOML text, valid for `--config`."""
        head = {"method": self.method, "label": self.label, **self.config.plain()}
        return tomli_w.dumps({**head, self.method: self.hyper_parameters()})

    @classmethod
    def from_toml(cls, values: dict[str, Any], where: str) -> Run:
        """Build from the values of `to_toml`, which must be complete."""
        values = dict(values)
        try:
            method, label = values.pop("method"), values.pop("label")
            own = flattened(values.pop(method))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: not the configuration of a run: {error} is missing") from error
        return cls.recorded(method, {**values, **own}, label, where)

    @classmethod
    def recorded(cls, method: str, values: dict[str, Any], label: str, where: str) -> Run:
        """Build from a file, which may be untrusted: a user's own code is not imported (see `with_code`)."""
        if not (isinstance(method, str) and isinstance(label, str)):
            raise UserError(f"{where}: method and label must be strings, got {method!r} and {label!r}")
        if is_built_in(method):
            return cls._make(method, values, label, where)
        own = tuple((name, value) for name, value in values.items() if name not in PART_OF)
        config = Config.of({name: value for name, value in values.items() if name in PART_OF}, where)
        return cls(method, RecordedMethod(method.rpartition(":")[2], own), config, label)

    def with_code(self) -> Run:
        """The run with the code of its method, ready to train. This imports a user's own method."""
        return Run.make(self.method, self.plain(), self.label)

    def with_values(self, values: dict[str, Any], where: str) -> Run:
        """The run with some hyper-parameters and settings changed, by their flat names."""
        kind = type(layers(self.algorithm)[""])
        return Run.make(self.method, self.plain() | values, self.label, where, kind)

    def identity(self) -> str:
        """Method, problem and settings as text. Two runs have the same identity only if they compute the same result.

        Execution and label are not part of it. Defaults are omitted: the identity of a run stays the same if a later
        version adds a setting.
        """
        settings = changed_fields(self.config.problem) | changed_fields(self.config.settings)
        return json.dumps([self.method, changed_hyper_parameters(self.algorithm), settings], sort_keys=True)

    def name(self) -> str:
        """A readable file name that is unique to this run."""
        config, method = self.config, self.method.split("/")[-1]
        words = (config.problem.short("data"), config.problem.split, method, f"seed{config.settings.seed}")
        return "-".join([*map(file_name, words), digest(self.identity())])

    def stop_reason(self, records: Iterable[Mapping[str, Any]]) -> str | None:
        """Why `until` or `patience` stopped the run with these records, and where; None if they did not."""
        return stop_reason(self.config.settings, records)

    def changes_to(self, other: Run) -> list[str]:
        """The names of the settings that differ in another run, of those that cannot change when a run is resumed."""
        ours, theirs = (_kept(run) for run in (self, other))
        changed = {name: (ours.get(name), theirs.get(name)) for name in ours | theirs}
        if self.config.settings.rounds == other.config.settings.rounds:
            changed.pop("rounds", None)  # only one of two schedules depends on them
        return [_with_file(name, *values) for name, values in changed.items() if values[0] != values[1]]


def changed_hyper_parameters(algorithm: Algorithm) -> dict[str, Any]:
    """The hyper-parameters that differ from the defaults, by their flat names."""
    return {
        f"{layer}.{name}" if layer else name: value
        for layer, each in layers(algorithm).items()
        for name, value in changed_fields(each).items()
        if not (layer and name == "inner")
    }


def _kept(run: Run) -> dict[str, Any]:
    config = run.config
    own = {name: list(v) if isinstance(v, tuple) else v for name, v in run.hyper_parameters().items()}
    return {"method": run.method, **asdict(config.problem), **config.settings.fixed(), **own}


def _with_file(name: str, before: Any, after: Any) -> str:
    """The name of a setting that differs; if it is the content of a file, also the file."""
    if name not in ("data", "model"):
        return f"{name} (lr_schedule cosine depends on it)" if name == "rounds" else name
    if str(before).startswith(IN_MEMORY) and str(after).startswith(IN_MEMORY):
        return "the task (its data or its model's initial weights)"
    ours, theirs = (OwnCode.named(str(each)) for each in (before, after))
    same = ours and theirs and replace(ours, content="") == replace(theirs, content="")
    return f"{name} (the content of {ours.file})" if ours and same else name


def digest(text: str) -> str:
    """A hash of eight hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def file_name(text: str) -> str:
    """The text with only characters that are valid in file names on all systems."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
