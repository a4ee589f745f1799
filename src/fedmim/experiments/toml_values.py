"""Dataclasses from and to plain values, as TOML files hold them; names and types are checked."""

from __future__ import annotations

import functools
import tomllib
import types
import typing
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedmim.errors import UserError, unknown

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a missing or broken one is named."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file") from error
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, or brackets nested as deep
        raise UserError(f"{path}: not valid TOML ({error})") from error


def make(cls: type[T], values: dict[str, Any], where: str) -> T:
    """Make a dataclass from plain values; `where` says in errors whose values they are."""
    hints = _hints(cls)  # type: ignore[arg-type]  # a class can be hashed
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            raise unknown(f"{where}: setting", name, names)
    try:
        return cls(**{name: _convert(value, hints[name], f"{where}: {name}") for name, value in values.items()})
    except ValueError as error:
        message = str(error) if str(error).startswith(where) else f"{where}: {error}"
        raise UserError(message) from error


def plain(instance: Any) -> dict[str, Any]:
    """A dataclass as values that TOML can hold; None is written as "none"."""
    return {name: "none" if value is None else value for name, value in asdict(instance).items()}


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)  # which takes a millisecond


def _convert(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None or value == "none":
            return None
        hint = next(argument for argument in arguments if argument is not type(None))
        return _convert(value, hint, where)
    if origin is Literal:
        if value not in arguments:
            raise UserError(f"{where} must be one of {', '.join(arguments)}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where} must be a list, got {value!r}")
        return tuple(_convert(item, arguments[0], where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, bool, str) and (
        not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)
    ):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise UserError(f"{where} must be {words[hint]}, got {value!r}")
    return value
