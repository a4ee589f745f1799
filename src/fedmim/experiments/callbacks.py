"""Callbacks by name: those that the command line asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedmim.errors import UserError
from fedmim.experiments.methods import import_file

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback


def find_callback(name: str) -> Callback:
    """A user's own, given as file.py:ClassName."""
    path, colon, kind = name.rpartition(":")
    if not colon:
        raise UserError(f"callback: {name!r} is not file.py:ClassName")
    made = getattr(import_file(Path(path), "callback"), kind, None)
    if not (isinstance(made, type) and all(hasattr(made, name) for name in ("on_start", "on_round", "on_end"))):
        raise UserError(f"callback: {path} has no fedmim.Callback of the name {kind!r}")
    callback: Callback = made()
    return callback
