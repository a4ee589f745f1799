"""Command-line flags from typed fields, with their docstrings as help; tyro does the parsing."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from fedmim.experiments.config import field_docs

_registry = ConstructorRegistry()


@dataclass(frozen=True)
class Flag:
    """One flag: --name, of a type, with its default and help."""

    name: str
    type: Any
    default: Any
    help: str
    short: str | None = None
    metavar: str | None = None


@dataclass(frozen=True)
class Group:
    """Flags shown together; with `prefix` they are spelt --group.name."""

    name: str
    flags: list[Flag]
    prefix: bool = False


def flags_of(cls: type, defaults: dict[str, Any], without: Iterable[str] = ()) -> list[Flag]:
    """A flag for each field of a dataclass; `defaults` override its own."""
    hints, docs = typing.get_type_hints(cls), field_docs(cls)
    return [
        Flag(each.name, hints[each.name], defaults.get(each.name, each.default), docs.get(each.name, ""))
        for each in fields(cls)
        if each.name not in without
    ]


def parse(program: str, description: str, groups: list[Group], argv: list[str]) -> dict[str, dict[str, Any]]:
    """The values of each group. Help and mistyped flags end the program, as with any command line."""
    parts: list[tuple[str, Any, Any]] = []
    flat: Any = tyro.conf.OmitArgPrefixes
    for group in groups:
        typed = [(flag.name, Annotated[flag.type, _shown(flag)], field(default=flag.default)) for flag in group.flags]
        kind = make_dataclass(group.name, typed, frozen=True)
        kind.__doc__ = ""
        parts.append((group.name, kind if group.prefix else flat[kind], field(default=kind())))
    whole: Any = make_dataclass("Options", parts)
    whole.__doc__ = ""
    argv = ["None" if word == "none" else word for word in argv]
    with _registry:
        parsed: Any = tyro.cli(
            whole, prog=program, description=description, args=argv, config=(tyro.conf.FlagCreatePairsOff,)
        )
    return {group.name: vars(getattr(parsed, group.name)) for group in groups}


def _shown(flag: Flag) -> Any:
    """How a flag shows in the help."""
    options, aliases = typing.get_args(flag.type), [flag.short] if flag.short else None
    metavar = f"{options[0].__name__.upper()}|none" if type(None) in options else flag.metavar
    return tyro.conf.arg(help=flag.help, metavar=metavar, aliases=aliases)


def given(argv: list[str]) -> set[str]:
    """The names of the flags that are on the command line."""
    words = (word.split("=")[0] for word in argv if word.startswith("--"))
    return {word.removeprefix("--").removeprefix("no-").replace("-", "_") for word in words}


def peek(argv: list[str], name: str) -> str | None:
    """The value of a flag before the parsing, because other flags and their defaults depend on it."""
    for word, after in zip(argv, [*argv[1:], ""], strict=False):
        if word == f"--{name}":
            return after
        if word.startswith(f"--{name}="):
            return word.split("=", 1)[1]
    return None


@_registry.primitive_rule
def _comma_separated(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Lists are written with commas, as in --seeds 0,1,2; an empty one as ''."""
    if typing.get_origin(info.type) is not tuple:
        return None
    item = typing.get_args(info.type)[0]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{item.__name__.upper()},...",
        instance_from_str=lambda words: tuple(item(part) for part in words[0].split(",") if part.strip()),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [",".join(map(str, values))],
    )
