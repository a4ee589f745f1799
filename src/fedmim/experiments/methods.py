"""Methods and callbacks by name: built-in ones, and users' own given as file.py:ClassName; lists of methods."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cloudpickle

from fedmim.algorithms import METHODS, Algorithm
from fedmim.errors import UserError, unknown
from fedmim.experiments.config import PART_OF
from fedmim.experiments.toml_values import parse_toml

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback

Variant = tuple[str, dict[str, Any]]  # a method, and what it sets for itself


def find_method(method: str) -> type[Algorithm]:
    """The class of a built-in method, or of a user's own given as file.py:ClassName."""
    if method in METHODS:
        return METHODS[method]
    path, colon, name = method.rpartition(":")
    if not colon:
        raise unknown("method", method, [*METHODS, "file.py:ClassName"])
    kind = getattr(import_file(Path(path), "method"), name, None)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise UserError(f"method: {path} has no Algorithm of the name {name!r}")
    _check_fields(kind, method)
    return kind


def _check_fields(kind: type[Algorithm], method: str) -> None:
    """Reject fields of an own method that settings have taken, and types that cannot be looked up."""
    for field in fields(kind):
        if field.name in (*PART_OF, "method", "label"):
            raise UserError(f"method: the field {field.name!r} of {method} is also a setting: give it another name")
    try:
        typing.get_type_hints(kind)
    except Exception as error:  # it evaluates the user's annotations
        raise UserError(f"method: the types of the fields of {method} cannot be read ({error})") from error


def find_callback(name: str) -> Callback:
    """A user's own callback, given as file.py:ClassName."""
    path, colon, kind = name.rpartition(":")
    if not colon:
        raise UserError(f"callback: {name!r} is not file.py:ClassName")
    made = getattr(import_file(Path(path), "callback"), kind, None)
    if not (isinstance(made, type) and all(hasattr(made, name) for name in ("on_start", "on_round", "on_end"))):
        raise UserError(f"callback: {path} has no fedmim.Callback of the name {kind!r}")
    try:
        callback: Callback = made()
    except Exception as error:
        raise UserError(
            f"callback: {kind} of {path} cannot be made without arguments ({type(error).__name__}: {error}): "
            "give its constructor defaults"
        ) from error
    return callback


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
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise UserError(f"{what}: {file} cannot be imported ({type(error).__name__}: {error})") from error
        cloudpickle.register_pickle_by_value(module)  # worker processes cannot import it by name
    return sys.modules[name]


def parse_list(text: str) -> list[Variant]:
    """Methods with their own settings: `fedavg,fedmim(alpha=[0.9], lr=0.5, label="one step")`.

    Values are TOML's.
    """
    variants = []
    for name, settings in _entries(text):
        try:
            values = parse_toml(f"v = {{{settings}}}")
            if not name or list(values) != ["v"]:  # settings that close the brace and go on
                raise ValueError("a name is missing, or a bracket")
        except ValueError as error:
            raise UserError(
                f"methods: {f'{name}({settings})'!r} is not name(setting=value, ...) with values as in TOML ({error})"
            ) from error
        variants.append((name, values["v"]))
    return variants


_NAME = re.compile(r"[^(),]*+")
_SETTINGS = re.compile(r"""\(((?:"(?:\\.|[^"\\])*+"|'[^']*+'|[^()"'])*+)\)\s*+""", re.DOTALL)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Each name with the text in its brackets; brackets and commas in quotes are part of that text."""
    place = -1  # of the comma before an entry
    while place < len(text):
        name = _NAME.match(text, place + 1)
        assert name is not None  # it matches anywhere
        place, settings = name.end(), _SETTINGS.match(text, name.end())
        if settings:
            place = settings.end()
        if place < len(text) and text[place] != ",":
            raise UserError(
                f"methods: {text[name.start() :]!r} is not a method; write name or name(setting=value, ...)"
            )
        yield name[0].strip(), settings[1] if settings else ""


def label_all(variants: list[Variant], titles: Mapping[str, str] | None = None) -> list[str]:
    """A label for each variant, all different: its own, or the method's title with what sets it apart.

    `titles` are those of methods whose code is not to be imported.
    """
    labels = []
    for method, own in variants:
        if "label" in own:
            if not isinstance(own["label"], str):
                raise UserError(f"methods: a label must be a text, got {own['label']!r}")
            labels.append(own["label"])
            continue
        title = (titles or {}).get(method) or find_method(method).title
        apart = ", ".join(f"{name}={_shown(value)}" for name, value in own.items())
        labels.append(f"{title} ({apart})" if apart else title)
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f'methods: {label!r} is there twice; give each its own label, as in fedmim(label="...")')
    return labels


def _shown(value: Any) -> str:
    return "[" + ",".join(map(_shown, value)) + "]" if isinstance(value, list) else str(value)
