"""Where data is looked for, and what is said when it is not there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedmim.errors import UserError

VARIABLE = "FEDMIM_DATA"


def data_directory(data_dir: Path | str | None = None) -> Path:
    """The directory given, else the environment variable FEDMIM_DATA, else ./data."""
    return Path(data_dir or os.environ.get(VARIABLE) or "data").expanduser()


def require_files(name: str, folder: Path, files: Sequence[str]) -> Path:
    """The folder, if it has all of these files; nothing is opened."""
    if not folder.is_dir():
        raise not_found(name, folder)
    missing = [file for file in files if not (folder / file).exists()]
    if missing:
        raise UserError(f"{name}: {folder} is incomplete, {missing[0]} is missing: {fetch_anew(name, folder)}")
    return folder


def not_found(name: str, folder: Path) -> UserError:
    """The error for a data set whose folder does not exist."""
    return UserError(
        f"{name}: no folder {folder}. Give the directory that has it by --data-dir (or {VARIABLE}), "
        f"or download it: fedmim data fetch {name} --data-dir {folder.parent}"
    )


def fetch_anew(name: str, folder: Path) -> str:
    """The remedy for a folder whose content is wrong."""
    return f"move {folder} away and run: fedmim data fetch {name} --data-dir {folder.parent}"
