"""A user's own code, given as file.py:Name. The content of the file is recorded as a hash: file.py:Name#HASH."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass, replace
from importlib.abc import SourceLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from fedmim.errors import UserError

_WRITTEN = re.compile(r"(?P<file>.+\.py):(?P<name>[^:#]+)(?:#(?P<content>[0-9a-f]{16}))?", re.DOTALL)


@dataclass(frozen=True)
class OwnCode:
    """A class or function in a file."""

    file: Path
    name: str
    content: str = ""  # the hash of the file; empty: any content

    @classmethod
    def named(cls, text: str) -> OwnCode | None:
        """Parse file.py:Name or file.py:Name#HASH; None if it is neither."""
        found = _WRITTEN.fullmatch(text)
        return cls(Path(found["file"]), found["name"], found["content"] or "") if found else None

    def __str__(self) -> str:
        return f"{self.file}:{self.name}" + (f"#{self.content}" if self.content else "")

    @property
    def short(self) -> str:
        """The name without folder and hash, for tables and titles."""
        return f"{self.file.name}:{self.name}"

    def pinned(self, what: str) -> OwnCode:
        """With the full path and the hash of the file as it is now, unless a hash is given."""
        if self.content:
            return self
        full = self.file.expanduser().resolve()
        return replace(self, file=full, content=_hash(_read(full, what)))

    def call(self, what: str, offered: dict[str, Any]) -> Any:
        """Import the file, and call the class or function with those of the offered arguments that it declares."""
        file = self.file.expanduser()
        if self.content and _hash(_read(file, what)) != self.content:
            raise UserError(
                f"{what}: {file} has changed since it was recorded; restore it, or start a new run with "
                f"{file}:{self.name}"
            )
        function = getattr(import_file(file, what), self.name, None)
        if not callable(function):
            raise UserError(f"{what}: {file} has no class or function named {self.name!r}")
        try:
            return function(**self._accepted(function, what, offered))
        except UserError as error:
            raise UserError(f"{what}: {self.short}: {error}") from error
        except (Exception, SystemExit) as error:
            text = " ".join(str(error).split())
            raise UserError(f"{what}: {self.short} raised {type(error).__name__}: {text}") from error

    def _accepted(self, function: Any, what: str, offered: dict[str, Any]) -> dict[str, Any]:
        declared = inspect.signature(function).parameters.values()
        for each in declared:
            needed = each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
            if needed and (each.name not in offered or each.kind is each.POSITIONAL_ONLY):
                raise UserError(f"needs the argument {each.name!r}; it can only take {', '.join(offered)}")
        return {each.name: offered[each.name] for each in declared if each.name in offered}


def import_file(file: Path, what: str) -> ModuleType:
    """Import a user's file, once for each content. `what` is the setting that names it, for error messages."""
    content = _read(file, what)
    identity = bytes(file.resolve()) + b"\0" + content
    name = "fedmim_own_" + hashlib.blake2b(identity, digest_size=8).hexdigest()
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file, loader=_Loader(file, content))
        if spec is None or spec.loader is None or file.suffix != ".py":
            raise UserError(f"{what}: {file} is not a Python file")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look up their module there
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            text = " ".join(str(error).split())
            raise UserError(f"{what}: {file} cannot be imported ({type(error).__name__}: {text})") from error
        cloudpickle.register_pickle_by_value(module)  # worker processes cannot import it by name
    return sys.modules[name]


class _Loader(SourceLoader):
    """Loads a content that has been read. Python's own loader may use the bytecode of an earlier content."""

    def __init__(self, file: Path, content: bytes) -> None:
        self._file, self._content = file, content

    def get_filename(self, fullname: str) -> str:
        """The file, for tracebacks."""
        return str(self._file)

    def get_data(self, path: Any) -> bytes:
        """The content."""
        return self._content


def _read(file: Path, what: str) -> bytes:
    if not file.is_file():
        raise UserError(f"{what}: {file} is not a file; give your own {what} as file.py:Name")
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{what}: {file} cannot be read ({error.strerror or error})") from error


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
