"""Convert dataclasses from and to TOML values. Names and types are checked."""

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
    """Read a TOML file. Errors name the file."""
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
    """Parse TOML with strings, numbers, lists and tables. All other types raise ValueError.

    Numbers are limited to 64 bits and nesting is limited, so that callers need no checks of their own.
    """
    # The time and memory of tomllib grow with the square of the number of parts of a key. A string is one part.
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
                raise ValueError(f"dates and times are not supported, got {value}")
        inner = [
            value.values() if isinstance(value, dict) else value for value in level if isinstance(value, dict | list)
        ]
        level = [value for values in inner for value in values]
    if level:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def make(cls: type[T], values: dict[str, Any], where: str) -> T:
    """Build a dataclass from plain values. Error messages start with `where`, the source of the values."""
    hints = _hints(cls)  # type: ignore[arg-type]  # classes are hashable
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            raise unknown(f"{where}: setting", name, names)
    missing = [each.name for each in fields(cls) if each.name not in values and not _has_default(each)]  # type: ignore[arg-type]
    if missing:
        raise UserError(f"{where}: {missing[0]} is missing: set it, or give the field of {cls.__name__} a default")
    try:
        return cls(**{name: _convert(value, hints[name], f"{where}: {name}") for name, value in values.items()})
    except ValueError as error:
        message = str(error) if str(error).startswith(where) else f"{where}: {error}"
        raise UserError(message) from error


def plain(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass as TOML values."""
    return {name: plain_value(value) for name, value in asdict(instance).items()}


def plain_value(value: Any) -> Any:
    """A TOML value: None becomes "none"."""
    return "none" if value is None else value


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)  # takes a millisecond


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
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
        raise UserError(f"{where} must be {words[hint]}, got {value!r}")
    if hint is str and "\0" in value:  # invalid in paths; the system would raise ValueError
        raise UserError(f"{where} must be a string without NUL characters, got {value!r}")
    return value


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING
