"""Dataclasses from and to plain values, as TOML files hold them; names and types are checked."""

from __future__ import annotations

import functools
import re
import tomllib
import types
import typing
from dataclasses import MISSING, Field, asdict, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedmim.errors import UserError, unknown

T = TypeVar("T")

LARGEST_FILE = 10_000_000  # bytes
DEEPEST = 30  # levels of nesting
_NOT_KEYS = re.compile(
    r""""{3}(?:\\[\s\S]|[^\\])*?"{3,5}|'{3}[\s\S]*?'{3,5}|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+'|\#.*"""
)  # strings and comments
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{DEEPEST}}}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a missing or broken one is named."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ValueError(f"it has more than {LARGEST_FILE:,} bytes")
        return parse_toml(content.decode())
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML ({error})") from error


def parse_toml(text: str) -> dict[str, Any]:
    """The values of a TOML text: texts, numbers, lists and tables. Raises ValueError for all others.

    Numbers have at most 64 bits, and nesting has a limit: the rest of the program need not ask.
    """
    # tomllib takes memory and time by the square of a key's parts. Strings count as one part of a key.
    if _LONG_KEY.search(_NOT_KEYS.sub("x", text)):
        raise ValueError(f"a key has more than {DEEPEST} parts")
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep") from None
    _check_values(values)
    return values


def _check_values(values: dict[str, Any]) -> None:
    level: list[Any] = [values]
    for _ in range(DEEPEST + 1):
        for value in level:
            if isinstance(value, int) and abs(value) >= 2**64:
                raise ValueError("a whole number has more than 64 bits")
            if not isinstance(value, int | float | str | list | dict):
                raise ValueError(f"dates and times are not used here, got {value}")
        inner = [
            value.values() if isinstance(value, dict) else value for value in level if isinstance(value, dict | list)
        ]
        level = [value for values in inner for value in values]
    if level:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def make(cls: type[T], values: dict[str, Any], where: str) -> T:
    """Make a dataclass from plain values; `where` says in errors whose values they are."""
    hints = _hints(cls)  # type: ignore[arg-type]  # a class can be hashed
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            raise unknown(f"{where}: setting", name, names)
    missing = [each.name for each in fields(cls) if each.name not in values and not _has_default(each)]  # type: ignore[arg-type]
    if missing:
        raise UserError(f"{where}: {missing[0]} is missing: give it a value, or its field of {cls.__name__} a default")
    try:
        return cls(**{name: _convert(value, hints[name], f"{where}: {name}") for name, value in values.items()})
    except ValueError as error:
        message = str(error) if str(error).startswith(where) else f"{where}: {error}"
        raise UserError(message) from error


def plain(instance: Any) -> dict[str, Any]:
    """A dataclass as values that TOML can hold."""
    return {name: plain_value(value) for name, value in asdict(instance).items()}


def plain_value(value: Any) -> Any:
    """A value as TOML can hold it: None is written as "none"."""
    return "none" if value is None else value


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
            raise UserError(f"{where} must be one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where} must be a list, got {value!r}")
        return tuple(_convert(item, arguments[0], where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise UserError(f"{where} must be a finite number") from None
    if hint in (int, float, bool, str) and (
        not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)
    ):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise UserError(f"{where} must be {words[hint]}, got {value!r}")
    if hint is str and "\0" in value:  # no path has it, and the system says so by an error of another kind
        raise UserError(f"{where} must be a text without NUL characters, got {value!r}")
    return value


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING
