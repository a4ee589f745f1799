"""Methods and callbacks by name: built-in ones, and users' own given as file.py:ClassName; lists of methods.

A method may have others around it, feddyn+leap+sharp; their hyper-parameters are leap.alpha, sharp.radius, ...
"""

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

from fedmim.algorithms import METHODS, WRAPPERS, Algorithm, Wrapper
from fedmim.errors import UserError, unknown
from fedmim.experiments.config import PART_OF
from fedmim.experiments.toml_values import make, parse_toml, plain_value

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback

Variant = tuple[str, dict[str, Any]]  # a method, and what it sets for itself


def split_name(method: str) -> tuple[str, list[str]]:
    """The name of the innermost method, and of those around it: feddyn+leap+sharp is feddyn, leap, sharp."""
    base, around = method, list[str]()
    while (parts := base.rpartition("+"))[2].strip() in WRAPPERS and parts[1]:
        base, around = parts[0].strip(), [parts[2].strip(), *around]
    return base, around


def is_built_in(method: str) -> bool:
    """Whether all of a method is built-in, so that its name says what it does."""
    return split_name(method)[0] in METHODS


def make_method(method: str, values: Mapping[str, Any], where: str) -> tuple[Algorithm, dict[str, Any]]:
    """The method with its hyper-parameters, and the other values."""
    base, around = split_name(method)
    kind, rest = find_method(base), dict(values)

    def taken(kind: type[Algorithm], prefix: str = "") -> dict[str, Any]:
        names = [each.name for each in fields(kind) if prefix + each.name in rest]
        return {name: rest.pop(prefix + name) for name in names}

    algorithm = make(kind, taken(kind), where)
    for name in around:
        wrapper: Any = WRAPPERS[name]
        algorithm = make(wrapper, {"inner": algorithm, **taken(wrapper, f"{name}.")}, where)
    return algorithm, rest


def layers(algorithm: Algorithm) -> dict[str, Algorithm]:
    """The innermost method under "", and those around it by their names, from the inside out."""
    if isinstance(algorithm, Wrapper):
        return {**layers(algorithm.inner), algorithm.suffix: algorithm}
    return {"": algorithm}


def hyper_parameters(algorithm: Algorithm) -> dict[str, Any]:
    """The values of a method's fields, as TOML can hold them; those of the ones around it with a prefix."""
    found: dict[str, Any] = {}
    for layer, own in layers(algorithm).items():
        names = [each.name for each in fields(own) if not (layer and each.name == "inner")]
        found |= {f"{layer}.{name}" if layer else name: plain_value(getattr(own, name)) for name in names}
    return found


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a TOML table by their flat names: leap = {alpha = ...} is leap.alpha."""
    flat: dict[str, Any] = {}
    for name, value in dict(values).items():
        nested = name in WRAPPERS and isinstance(value, dict)
        flat |= {f"{name}.{inner}": each for inner, each in value.items()} if nested else {name: value}
    return flat


def find_method(method: str) -> type[Algorithm]:
    """The class of a built-in method, or of a user's own given as file.py:ClassName."""
    if method in METHODS:
        return METHODS[method]
    path, colon, name = method.rpartition(":")
    if not colon:
        if "+" in method:
            base, _, wrapper = method.rpartition("+")
            raise unknown(f"method: what is around {base}", wrapper, WRAPPERS)
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
    """Methods with their own settings: `fedavg,fedmim(alpha=[0.9], lr=0.5),feddyn+leap(alpha=[0.3,0.2])`.

    Values are TOML's. Settings in the brackets of leap and sharp are theirs where they have a field of that name.
    """
    return [_variant(parts) for parts in _entries(text)]


def _variant(parts: list[tuple[str, str]]) -> Variant:
    method, own = "+".join(name for name, _ in parts), dict[str, Any]()
    for name, settings in parts:
        try:
            values = parse_toml(f"v = {{{settings}}}")
            if not name or list(values) != ["v"]:  # settings that close the brace and go on
                raise ValueError("a name is missing, or a bracket")
        except ValueError as error:
            raise UserError(
                f"methods: {f'{name}({settings})'!r} is not name(setting=value, ...) with values as in TOML ({error})"
            ) from error
        last = name.rpartition("+")[2].strip()
        around = last in WRAPPERS and (name != last or name is not parts[0][0])
        theirs = {each.name for each in fields(WRAPPERS[last])} if around else set()
        own_values = flattened(values["v"])
        values = {f"{last}.{key}" if key in theirs else key: value for key, value in own_values.items()}
        if twice := sorted(set(values) & set(own)):
            raise UserError(f"methods: {twice[0]} is given twice for {method}")
        own |= values
    return method, own


_NAME = re.compile(r"[^(),]*+")
_SETTINGS = re.compile(r"""\(((?:"(?:\\.|[^"\\])*+"|'[^']*+'|[^()"'])*+)\)\s*+""", re.DOTALL)


def _entries(text: str) -> Iterator[list[tuple[str, str]]]:
    """The parts of each entry, a name with the text in its brackets; a + after a bracket goes on with the entry.

    Brackets and commas in quotes are part of the text in brackets.
    """
    place, parts = -1, list[tuple[str, str]]()  # place: of the comma or + before a part
    while place < len(text):
        name = _NAME.match(text, place + 1)
        assert name is not None  # it matches anywhere
        place, settings = name.end(), _SETTINGS.match(text, name.end())
        if settings:
            place = settings.end()
        parts.append((name[0].strip(), settings[1] if settings else ""))
        if place < len(text) and text[place] not in ",+":
            raise UserError(
                f"methods: {text[name.start() :]!r} is not a method; write name or name(setting=value, ...)"
            )
        if place == len(text) or text[place] == ",":
            yield parts
            parts = []


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
        title = (titles or {}).get(method) or title_of(method)
        short = [name.rpartition(".")[2] for name in own]  # without leap. or sharp., unless that is not clear
        names = short if len(set(short)) == len(short) else list(own)
        apart = ", ".join(f"{name}={_shown(value)}" for name, value in zip(names, own.values(), strict=True))
        labels.append(f"{title} ({apart})" if apart else title)
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f'methods: {label!r} is there twice; give each its own label, as in fedmim(label="...")')
    return labels


def title_of(method: str) -> str:
    """A method's name in tables and plots."""
    base, around = split_name(method)
    return " + ".join([find_method(base).title, *around])


def _shown(value: Any) -> str:
    return "[" + ",".join(map(_shown, value)) + "]" if isinstance(value, list) else str(value)
