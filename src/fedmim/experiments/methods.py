"""Find methods and callbacks by name: built-in ones, or the user's own as file.py:ClassName. Parse lists of methods.

Wrappers can be added to a method, as in feddyn+leap+sharp. Their hyper-parameters are leap.alpha, sharp.radius, ...
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmim.algorithms import METHODS, REFERENCES, WRAPPERS, Algorithm, Wrapper
from fedmim.errors import UserError, unknown
from fedmim.experiments.config import PART_OF
from fedmim.experiments.own_code import import_file
from fedmim.experiments.toml_values import make, parse_toml, plain_value

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback

Variant = tuple[str, dict[str, Any]]  # a method and its settings


def split_name(method: str) -> tuple[str, list[str]]:
    """The name of the innermost method and of its wrappers: feddyn+leap+sharp gives feddyn, [leap, sharp]."""
    base, around = method, list[str]()
    while (parts := base.rpartition("+"))[2].strip() in WRAPPERS and parts[1]:
        base, around = parts[0].strip(), [parts[2].strip(), *around]
    return base, around


def is_reference(method: str) -> bool:
    """Whether a method is a reference, which tables and figures do not rank: centralised or local."""
    return split_name(method)[0] in REFERENCES


def is_built_in(method: str) -> bool:
    """Whether a method is built in, without code of the user."""
    return split_name(method)[0] in METHODS


def make_method(
    method: str, values: Mapping[str, Any], where: str, kind: type[Algorithm] | None = None
) -> tuple[Algorithm, dict[str, Any]]:
    """Build the method from its hyper-parameters. Also returns the remaining values.

    `kind` is the class of the innermost method, if it is known.
    """
    base, around = split_name(method)
    rest = dict(values)

    def taken(kind: type[Algorithm], prefix: str = "") -> dict[str, Any]:
        names = [each.name for each in fields(kind) if prefix + each.name in rest]
        return {name: rest.pop(prefix + name) for name in names}

    kind = kind or find_method(base)
    algorithm = make(kind, taken(kind), where)
    for name in around:
        wrapper: Any = WRAPPERS[name]
        algorithm = make(wrapper, {"inner": algorithm, **taken(wrapper, f"{name}.")}, where)
    return algorithm, rest


def layers(algorithm: Algorithm) -> dict[str, Algorithm]:
    """The innermost method as "", and its wrappers by name, from the inside out."""
    if isinstance(algorithm, Wrapper):
        return {**layers(algorithm.inner), algorithm.suffix: algorithm}
    return {"": algorithm}


def method_name(algorithm: Algorithm) -> str:
    """The name of a method on the command line; for a user's own its module and class."""
    parts = layers(algorithm)
    kind = type(parts.pop(""))
    built_in = {each: name for name, each in METHODS.items()}
    return "+".join([built_in.get(kind) or f"{kind.__module__}:{kind.__qualname__}", *parts])


def hyper_parameters(algorithm: Algorithm) -> dict[str, Any]:
    """The hyper-parameters of a method as TOML values. Those of wrappers have a prefix."""
    return {name: plain_value(value) for name, value in hyper_parameter_values(algorithm).items()}


def hyper_parameter_values(algorithm: Algorithm) -> dict[str, Any]:
    """The same as Python values: None instead of "none"."""
    found: dict[str, Any] = {}
    for layer, own in layers(algorithm).items():
        names = [each.name for each in fields(own) if not (layer and each.name == "inner")]
        found |= {f"{layer}.{name}" if layer else name: getattr(own, name) for name in names}
    return found


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a TOML table by flat names: leap = {alpha = ...} becomes leap.alpha."""
    flat: dict[str, Any] = {}
    for name, value in dict(values).items():
        nested = name in WRAPPERS and isinstance(value, dict)
        flat |= {f"{name}.{inner}": each for inner, each in value.items()} if nested else {name: value}
    return flat


def find_method(method: str) -> type[Algorithm]:
    """The class of a built-in method, or of the user's own given as file.py:ClassName."""
    if method in METHODS:
        return METHODS[method]
    path, colon, name = method.rpartition(":")
    if not colon:
        if "+" in method:
            base, _, wrapper = method.rpartition("+")
            raise unknown(f"method: wrapper of {base}", wrapper, WRAPPERS)
        raise unknown("method", method, [*METHODS, "file.py:ClassName"])
    kind = getattr(import_file(Path(path), "method"), name, None)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise UserError(f"method: {path} has no Algorithm named {name!r}")
    _check_fields(kind, method)
    return kind


def _check_fields(kind: type[Algorithm], method: str) -> None:
    """Reject fields that have the name of a setting, and fields with types that cannot be resolved."""
    for field in fields(kind):
        if field.name in (*PART_OF, "method", "label"):
            raise UserError(f"method: the field {field.name!r} of {method} has the name of a setting: rename it")
    try:
        typing.get_type_hints(kind)
    except Exception as error:  # evaluates the user's annotations
        raise UserError(f"method: the field types of {method} cannot be resolved ({error})") from error


def find_callback(name: str) -> Callback:
    """Create the user's own callback, given as file.py:ClassName."""
    path, colon, kind = name.rpartition(":")
    if not colon:
        raise UserError(f"callback: must be file.py:ClassName, got {name!r}")
    made = getattr(import_file(Path(path), "callback"), kind, None)
    if not (isinstance(made, type) and all(hasattr(made, name) for name in ("on_start", "on_round", "on_end"))):
        raise UserError(f"callback: {path} has no fedmim.Callback named {kind!r}")
    try:
        callback: Callback = made()
    except Exception as error:
        raise UserError(
            f"callback: {kind} of {path} cannot be created without arguments ({type(error).__name__}: {error}): "
            "give all constructor arguments defaults"
        ) from error
    return callback


def parse_list(text: str) -> list[Variant]:
    """Parse a list of methods with settings: `fedavg,fedmim(alpha=[0.9], lr=0.5),feddyn+leap(alpha=[0.3,0.2])`.

    Values are written as in TOML. In the brackets of a wrapper, a setting belongs to the wrapper if it has a field of
    this name.
    """
    return [_variant(parts) for parts in _entries(text)]


def _variant(parts: list[tuple[str, str]]) -> Variant:
    method, own = "+".join(name for name, _ in parts), dict[str, Any]()
    for name, settings in parts:
        try:
            values = parse_toml(f"v = {{{settings}}}")
            if not name or list(values) != ["v"]:  # the settings closed the brace and continued
                raise ValueError("a name or a bracket is missing")
        except ValueError as error:
            raise UserError(
                f"methods: {f'{name}({settings})'!r} must be name(setting=value, ...) with values as in TOML ({error})"
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
    """The parts of each entry: a name and the text in its brackets. A + after a bracket continues the entry.

    Brackets and commas inside quotes do not end an entry.
    """
    place, parts = -1, list[tuple[str, str]]()  # place: position of the comma or + before a part
    while place < len(text):
        name = _NAME.match(text, place + 1)
        assert name is not None  # it matches the empty string
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
    """A unique label for each variant: the given label, or the title of the method with its settings.

    `titles` has the titles of methods that must not be imported.
    """
    labels = []
    for method, own in variants:
        if "label" in own:
            if not isinstance(own["label"], str):
                raise UserError(f"methods: a label must be a string, got {own['label']!r}")
            labels.append(own["label"])
            continue
        title = (titles or {}).get(method) or title_of(method)
        short = [name.rpartition(".")[2] for name in own]  # without leap. or sharp., unless ambiguous
        names = short if len(set(short)) == len(short) else list(own)
        apart = ", ".join(f"{name}={_shown(value)}" for name, value in zip(names, own.values(), strict=True))
        labels.append(f"{title} ({apart})" if apart else title)
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f'methods: {label!r} is listed twice; give each its own label, as in fedmim(label="...")')
    return labels


def title_of(method: str) -> str:
    """The name of a method in tables and plots."""
    base, around = split_name(method)
    return " + ".join([find_method(base).title, *around])


def _shown(value: Any) -> str:
    return "[" + ",".join(map(_shown, value)) + "]" if isinstance(value, list) else str(value)
