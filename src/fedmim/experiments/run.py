"""A run: one method with its hyper-parameters, at one configuration, under one label."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedmim.algorithms import METHODS, Algorithm
from fedmim.errors import UserError
from fedmim.experiments.config import PART_OF, Config, Problem
from fedmim.experiments.methods import flattened, hyper_parameters, is_built_in, layers, make_method, split_name
from fedmim.simulation.settings import Settings


@dataclass(frozen=True)
class RecordedMethod(Algorithm):
    """A user's own method as read from a file: its name and hyper-parameters, without its code."""

    title: str = ""  # type: ignore[misc]  # of one method, not of a class
    hyper_parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Run:
    """One method to be run: what a run folder's config.toml holds."""

    method: str  # fedmim, ... or file.py:ClassName for a user's own
    algorithm: Algorithm
    config: Config
    label: str

    @classmethod
    def make(cls, method: str, values: dict[str, Any], label: str | None = None, where: str | None = None) -> Run:
        """From flat plain values: the method's own hyper-parameters are those it has a field for, the rest settings."""
        where = where or method
        algorithm, rest = make_method(method, values, where)
        base, around = split_name(method)
        if base not in METHODS:  # a full path, so that the run can be resumed from anywhere
            file, _, name = base.rpartition(":")
            base = f"{Path(file).resolve()}:{name}"
        return cls("+".join([base, *around]), algorithm, Config.of(rest, where), label or algorithm.title)

    def replace(self, **changes: Any) -> Run:
        """The same run with other values of some fields of its configuration, by their flat names."""
        return replace(self, config=self.config.replace(**changes))

    def plain(self) -> dict[str, Any]:
        """Configuration and hyper-parameters as flat values that TOML can hold."""
        return self.config.plain() | self.hyper_parameters()

    def hyper_parameters(self) -> dict[str, Any]:
        """The method's own values as TOML can hold them."""
        if isinstance(self.algorithm, RecordedMethod):
            return dict(self.algorithm.hyper_parameters)
        return hyper_parameters(self.algorithm)

    def to_toml(self) -> str:
        """As text that `--config` takes."""
        head = {"method": self.method, "label": self.label, **self.config.plain()}
        return tomli_w.dumps({**head, self.method: self.hyper_parameters()})

    @classmethod
    def from_toml(cls, values: dict[str, Any], where: str) -> Run:
        """From such a text, which must be complete."""
        values = dict(values)
        try:
            method, label = values.pop("method"), values.pop("label")
            own = flattened(values.pop(method))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: not the configuration of a run, {error} is missing") from error
        return cls.recorded(method, {**values, **own}, label, where)

    @classmethod
    def recorded(cls, method: str, values: dict[str, Any], label: str, where: str) -> Run:
        """From a file, which may be anybody's: the code of a user's own method is not imported (see `with_code`)."""
        if not (isinstance(method, str) and isinstance(label, str)):
            raise UserError(f"{where}: method and label must be texts, got {method!r} and {label!r}")
        if is_built_in(method):
            return cls.make(method, values, label, where)
        own = tuple((name, value) for name, value in values.items() if name not in PART_OF)
        config = Config.of({name: value for name, value in values.items() if name in PART_OF}, where)
        return cls(method, RecordedMethod(method.rpartition(":")[2], own), config, label)

    def with_code(self) -> Run:
        """The run with its method's code, which is imported here if it is a user's own: to train it."""
        return Run.make(self.method, self.plain(), self.label)

    def identity(self) -> str:
        """Method, problem and settings as text, execution and label aside: equal for equal runs alone.

        What is at its default is left out, so that a setting which is new in a later version makes no other run of it.
        """
        settings = _changed(self.config.problem) | _changed(self.config.settings)
        own = {
            f"{layer}.{name}" if layer else name: value
            for layer, each in layers(self.algorithm).items()
            for name, value in _changed(each).items()
            if not (layer and name == "inner")
        }
        return json.dumps([self.method, own, settings], sort_keys=True)

    def name(self) -> str:
        """A file name that a reader understands and that no other run has."""
        config, method = self.config, self.method.split("/")[-1]
        words = (config.problem.data, config.problem.split, method, f"seed{config.settings.seed}")
        return "-".join([*map(file_name, words), digest(self.identity())])

    def changes_to(self, other: Run) -> list[str]:
        """The names of what differs in another run, of all that a run keeps to its end."""
        ours, theirs = (_kept(run) for run in (self, other))
        return [name for name in ours | theirs if ours.get(name) != theirs.get(name)]


def _changed(instance: Algorithm | Problem | Settings) -> dict[str, Any]:
    values = {field.name: (getattr(instance, field.name), field.default) for field in fields(instance)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _kept(run: Run) -> dict[str, Any]:
    config = run.config
    own = {name: list(v) if isinstance(v, tuple) else v for name, v in run.hyper_parameters().items()}
    return {"method": run.method, **asdict(config.problem), **config.settings.fixed(), **own}


def digest(text: str) -> str:
    """Eight letters for a text."""
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def file_name(text: str) -> str:
    """A text in the letters that file names may have everywhere."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
