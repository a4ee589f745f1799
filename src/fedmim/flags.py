"""Command-line flags from dataclasses, with tyro: field docstrings are the help, the instance's values the defaults."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from fedmim.errors import UserError

_registry = ConstructorRegistry()
_STYLE: Any = (tyro.conf.SuppressFixed,)
_SWITCHES: Any = (tyro.conf.FlagCreatePairsOff,)  # --resume, but no --no-resume
BARE = {"--ray": "auto", "--per-client": "global"}  # what a flag without a value means


@dataclass(frozen=True)
class Selection:
    """The flags that determine the defaults of all others; they are read first."""

    config: str | None = None
    method: str | None = None
    methods: str | None = None
    data: str | None = None
    scale: str | None = None
    out: str | None = None
    resume: bool = False
    jobs: int | None = None


def select(argv: Sequence[str]) -> Selection:
    """Read only these flags; `parse` reads the others."""
    with _registry:
        selected, _ = tyro.cli(Selection, args=argv, return_unknown_args=True, add_help=False, config=_SWITCHES)
    return selected


@dataclass(frozen=True)
class Flags:
    """The parsed flags of a command line."""

    values: dict[str, dict[str, Any]]  # part -> field -> value
    given: frozenset[str]  # names of the flags on the command line: name, or part.name

    def changes(self, *parts: str, prefixed: bool = False) -> dict[str, Any]:
        """The values of the flags of these parts that were on the command line."""
        return {
            name: value
            for part in parts
            for name, value in self.values[part].items()
            if (f"{part}.{name}" if prefixed else name) in self.given
        }


def parse(
    program: str,
    about: str,
    argv: Sequence[str],
    parts: Mapping[str, Any],
    *,
    prefixed: Iterable[str] = (),
    without: Mapping[str, Iterable[str]] | None = None,
) -> Flags:
    """Parse one flag per field of the parts, which are dataclass instances; `without` leaves out fields of a part.

    Fields of a part in `prefixed` become --part.name. Only the types of values are checked. --help and unknown flags
    exit the program.
    """
    omit: Any = tyro.conf.OmitArgPrefixes
    left_out = {name: set((without or {}).get(name, ())) for name in parts}
    _check_names(program, {name: vars(part).keys() - left_out[name] for name, part in parts.items()}, prefixed)
    fields, helped = [], not {"-h", "--help"}.isdisjoint(argv)
    for name, part in parts.items():
        mirror = _mirror(part, left_out[name], helped)
        fields.append((name, type(mirror) if name in prefixed else omit[type(mirror)], field(default=mirror)))
    whole: Any = make_dataclass("Options", fields, namespace={"__doc__": ""})
    argv = _with_bare_values(argv)
    with _registry:
        parsed: Any = tyro.cli(whole, prog=program, description=_joined(about), args=argv, config=_STYLE)
    words = (word.split("=")[0].removeprefix("--") for word in argv if word.startswith("--"))
    given = frozenset(word.removeprefix("no-").replace("-", "_") for word in words)  # tyro does not report this
    _check_choices(parsed, parts)
    values = {
        part: {name: value for name, value in vars(getattr(parsed, part)).items() if name not in left_out[part]}
        for part in parts
    }
    return Flags(values, given)


def _with_bare_values(argv: Sequence[str]) -> list[str]:
    """The values of some flags can be left out: --ray is --ray auto."""
    words = list(argv)
    for place in range(len(words), 0, -1):
        if words[place - 1] in BARE and (place == len(words) or words[place].startswith("--")):
            words.insert(place, BARE[words[place - 1]])
    return words


def _check_names(program: str, parts: Mapping[str, Iterable[str]], prefixed: Iterable[str]) -> None:
    """Reject fields of a user's method that have the same name as a flag of the command."""
    owners: dict[str, str] = {"help": "all commands"}
    for part, names in parts.items():
        for name in names if part not in prefixed else ():
            if name in owners:
                raise UserError(f"{part}: the field {name!r} is also a flag of {program}: rename it")
            owners[name] = part


def _check_choices(parsed: Any, parts: Mapping[str, Any]) -> None:
    """Reject values that are not among the choices of their field, in one line."""
    for part, instance in parts.items():
        for name, hint in typing.get_type_hints(type(instance)).items():
            value = getattr(getattr(parsed, part), name, None)
            if (choices := _words(hint)) and value not in choices:
                raise UserError(f"{name}: must be one of {', '.join(choices)}, got {value!r}")


def _words(hint: Any) -> tuple[str, ...]:
    """The choices of a Literal of words; of another type, none."""
    choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    return choices if all(isinstance(choice, str) for choice in choices) else ()


def show_options(part: Any, without: Iterable[str] = ()) -> None:
    """Print the fields of an instance of a dataclass as flags, with their help and values."""
    mirror = _mirror(part, set(without), helped=True)
    with _registry, contextlib.suppress(SystemExit):
        tyro.cli(type(mirror), default=mirror, prog="", description="", args=["--help"], config=_STYLE)


def _mirror(part: Any, without: set[str], helped: bool) -> Any:
    """The same fields and values, without checks, and without flags for the omitted fields.

    A field that is true by default has the flags --name and --no-name, with one help text; other switches have one.
    The docstrings of the fields are only read if the help is printed.
    """
    kind = type(part)
    hints: dict[str, Any] = typing.get_type_hints(kind)
    docs = _field_docs(kind) if helped else {}
    marked: Any = Annotated
    changed: dict[str, Any] = {
        name: marked[hints[name], tyro.conf.arg(help=text)] for name, text in docs.items() if name in hints
    }
    for each in fields(kind):
        hint = changed.get(each.name, hints[each.name])
        if each.name in without:
            changed[each.name] = marked[hint, tyro.conf.Fixed]
        elif hints[each.name] is bool and each.default is not True:
            changed[each.name] = marked[hint, tyro.conf.FlagCreatePairsOff]
    # Made by a function, since dataclasses reject a list as a default.
    defaults = {name: field(default_factory=partial(getattr, part, name)) for name in vars(part)}
    new = [(name, changed[name], defaults[name]) for name in vars(part) if name in changed]
    free = {"__post_init__": lambda self: None, "__doc__": ""}
    return make_dataclass(kind.__name__, new, bases=(kind,), namespace=free, frozen=True)(**vars(part))


def _field_docs(kind: type) -> dict[str, str]:
    """The docstrings of the fields, with those of its base classes. tyro reads them too, but breaks lines where they
    are broken in the source."""
    from docstring_parser import parse_from_object

    docs: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        docs |= {own.arg_name: _joined(own.description) for own in parse_from_object(each).params if own.description}
    return docs


def _joined(text: str) -> str:
    """The text with each paragraph on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


@_registry.primitive_rule
def _none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """None is written as none, as in TOML files."""
    if info.type is not type(None):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="none",
        instance_from_str=lambda words: None,
        is_instance=lambda value: value is None,
        str_from_instance=lambda value: ["none"],
        choices=("none",),
    )


@_registry.primitive_rule
def _choices(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Choices are shown in the help; `_check_choices` checks them."""
    if not (choices := _words(info.type)):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(choices)}}}",
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: value in choices,
        str_from_instance=lambda value: [value],
    )


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
