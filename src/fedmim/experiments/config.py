"""Config: every setting of a run in one typed dataclass, which serves Python, TOML files and command-line flags."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import tomllib
import types
import typing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedmim.data.catalogue import find_descriptor
from fedmim.errors import UserError, unknown
from fedmim.simulation.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True)
class Config(Settings):
    """A run's data, split and model, with the settings of the simulation."""

    data: str = "digits"
    """Data set: digits (needs no download), fashion-mnist, cifar10, cifar100, tiny-imagenet (tiny-imagenet:N for its
    first N classes), heart-disease, folder:PATH (images in a folder for each class), tensors:FILE.safetensors.
    `fedmim data` shows what is found."""
    data_dir: str | None = None
    """Where the data sets lie; None: $FEDMIM_DATA, else ./data."""
    split: str = "dirichlet:0.1"
    """How the data is spread over clients: iid, dirichlet:U (label priors from Dir(U); smaller is harder),
    pathological:C (C classes a client), natural (the data's own clients)."""
    clients: int = 100
    """N, how many clients."""
    model: str = "mlp"
    """Network: logistic, mlp, cnn, lenet, resnet18."""
    augment: bool = True
    """Random crop and flip of training images, where the data set has them."""
    colour: float = 0.0
    """Strength of each client's own brightness and saturation, 0 for none."""
    image_size: int | None = None
    """Resize the images of folder:PATH to so many pixels a side; None: they must share one size."""
    validation: float = 0.0
    """Hold out this part of the training data and evaluate on it, in place of the test data: for choosing settings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clients < 1:
            raise UserError(f"clients: must be a whole number of at least 1, got {self.clients}")
        if not 0 <= self.colour <= 1:
            raise UserError(f"colour: must be between 0 and 1, got {self.colour}")
        if not 0 <= self.validation < 1:
            raise UserError(f"validation: must be at least 0 and below 1, got {self.validation}")


def defaults(data: str) -> dict[str, Any]:
    """All settings for a data set: those of Config, with the data set's own defaults."""
    descriptor = find_descriptor(data)
    return asdict(Config()) | dict(descriptor.defaults if descriptor else {}) | {"data": data}


def target_of(data: str) -> float | None:
    """The accuracy that `rounds to target` asks for unless one is given; None where the data set has none."""
    descriptor = find_descriptor(data)
    return descriptor.target if descriptor else None


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; a missing or broken one is named."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML ({error})") from error


def make(cls: type[T], values: dict[str, Any], where: str) -> T:
    """A dataclass from plain values, as TOML has them; names and types are checked, and `where` says whose they are."""
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


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)  # which takes a millisecond


def plain(instance: Any) -> dict[str, Any]:
    """A dataclass as values that TOML can hold; None is written as "none"."""
    values = asdict(instance)
    return {name: "none" if value is None else value for name, value in values.items()}


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


def field_docs(cls: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError, SyntaxError):  # a class made in a notebook or by exec has no source
            continue
        assert isinstance(body, ast.ClassDef)
        for statement, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr):
                text = getattr(after.value, "value", None)
                if isinstance(text, str) and isinstance(statement.target, ast.Name):
                    docs[statement.target.id] = " ".join(text.split())
    return docs
