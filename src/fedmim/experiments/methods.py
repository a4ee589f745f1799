"""Methods by name: which algorithm, with which hyper-parameters, at which settings, under which label."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import tomli_w

from fedmim.algorithms import METHODS, Algorithm
from fedmim.errors import UserError, unknown
from fedmim.experiments.config import Config, make, plain


@dataclass(frozen=True)
class Run:
    """One method to be run: what a run folder's config.toml holds."""

    method: str  # fedmim, ... or file.py:ClassName for a user's own
    algorithm: Algorithm
    config: Config
    label: str

    @classmethod
    def make(cls, method: str, values: dict[str, Any], label: str | None = None, where: str | None = None) -> Run:
        """From plain values: the method's own hyper-parameters are those it has a field for, the rest are settings."""
        kind = find(method)
        if method not in METHODS:  # a full path, so that the run can be resumed from anywhere
            file, _, name = method.rpartition(":")
            method = f"{Path(file).resolve()}:{name}"
        own = {field.name for field in fields(kind)}
        where = where or method
        algorithm = make(kind, {name: value for name, value in values.items() if name in own}, where)
        config = make(Config, {name: value for name, value in values.items() if name not in own}, where)
        return cls(method, algorithm, config, label or algorithm.title)

    def with_seed(self, seed: int) -> Run:
        """The same at another seed."""
        return replace(self, config=replace(self.config, seed=seed))

    def to_toml(self) -> str:
        """As text that `--config` takes."""
        head = {"method": self.method, "label": self.label, **plain(self.config)}
        return tomli_w.dumps({**head, self.method: plain(self.algorithm)})

    @classmethod
    def from_toml(cls, values: dict[str, Any], where: str) -> Run:
        """From such a text, which must be complete."""
        values = dict(values)
        try:
            method, label = values.pop("method"), values.pop("label")
            own = values.pop(method)
        except (KeyError, TypeError) as error:
            raise UserError(f"{where}: not the configuration of a run, {error} is missing") from error
        return cls.make(method, {**values, **own}, label, where)


def find(method: str) -> type[Algorithm]:
    """The class of a built-in method, or of a user's own given as file.py:ClassName."""
    if method in METHODS:
        return METHODS[method]
    path, colon, name = method.rpartition(":")
    if not colon:
        raise unknown("method", method, [*METHODS, "file.py:ClassName"])
    module = import_file(Path(path), "method")
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise UserError(f"method: {path} has no Algorithm of the name {name!r}")
    return kind


def import_file(file: Path, what: str) -> ModuleType:
    """The module of a user's file, imported once; `what` they gave it for."""
    if not file.is_file():
        raise UserError(f"{what}: {file} is not a file; an own {what} is given as file.py:ClassName")
    name = "fedmim_own_" + hashlib.blake2b(bytes(file.resolve()), digest_size=8).hexdigest()
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UserError(f"{what}: {file} is not a Python file")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up there
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise UserError(f"{what}: {file} cannot be imported ({type(error).__name__}: {error})") from error
        cloudpickle.register_pickle_by_value(module)  # worker processes cannot import it by name
    return sys.modules[name]


def parse_list(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Methods with their own settings: `fedavg,fedmim(alpha=[0.9], lr=0.5, label="one step")`.

    Values are TOML's.
    """
    entries = []
    for part in re.split(r",(?![^()]*\))", text):
        match = re.fullmatch(r"\s*([^()]+?)\s*(?:\((.*)\))?\s*", part, re.DOTALL)
        if match is None:
            raise UserError(f"methods: {part!r} is not a method; write name or name(setting=value, ...)")
        try:
            own = tomllib.loads(f"v = {{{match[2] or ''}}}")["v"]
        except tomllib.TOMLDecodeError as error:
            raise UserError(
                f"methods: {part.strip()!r} is not name(setting=value, ...) with values as in TOML ({error})"
            ) from error
        entries.append((match[1], own))
    return entries


def label_all(entries: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """A label for each entry, all different: its own, or the method's title with what sets it apart."""
    labels = []
    for method, own in entries:
        if "label" in own:
            labels.append(str(own["label"]))
            continue
        title = find(method).title
        apart = ", ".join(f"{name}={_short(value)}" for name, value in own.items())
        labels.append(f"{title} ({apart})" if apart else title)
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f'methods: {label!r} is there twice; give each its own label, as in fedmim(label="...")')
    return labels


def _short(value: Any) -> str:
    return "[" + ",".join(map(_short, value)) + "]" if isinstance(value, list) else str(value)
