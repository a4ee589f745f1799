"""Folders that fedmim made on a client's disk. Only these are ever removed: `state-dir` may be anybody's folder.

    state-dir / run / client / fedmim-client.json        the stamp: run and client

A folder is removed if its path has the id of a run, its stamp names this run and this client, and it has nothing but
files that fedmim writes. These files are removed one by one, then the empty folder. Symbolic links are never followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fedmim.errors import UserError
from fedmim.files import make_folder, write_text

STAMP = "fedmim-client.json"
MADE_BY = "fedmim: a client's files of one run"
RUN = re.compile("[0-9a-f]{1,64}")  # the id of a run
_FILE = rf"((slots|model)-\d+\.safetensors|{re.escape(STAMP)})"
OWN = re.compile(rf"{_FILE}|\.{_FILE}\.part")  # what fedmim writes, and what a killed process leaves of it


def make_stamped(root: Path, run: str, client: int) -> bool:
    """Make the folder of a client in a run; whether it is new."""
    folder = root / run / str(client)
    if is_stamped(root, run, client):
        return False
    new = not folder.exists()
    if not has_links(folder):
        make_folder(folder)
    if has_links(folder) or not has_only_own(folder):
        raise UserError(f"state-dir: {folder} is not fedmim's; name a different state-dir with --node-config")
    write_text(folder / STAMP, json.dumps(content(run, client)))
    return new


def stamped_folders(root: Path, client: int) -> Iterator[tuple[str, Path]]:
    """The runs in which this client has a stamped folder, and these folders."""
    with suppress(OSError):
        for path in sorted(root.iterdir()):
            if is_stamped(root, path.name, client):
                yield path.name, path / str(client)


def remove_stamped(root: Path, run: str, client: int) -> None:
    """Remove the folder of a client in a run, if fedmim made it and nobody else put anything there."""
    folder = root / run / str(client)
    with suppress(OSError):  # another process removes it, too, or it cannot be read
        if not (is_stamped(root, run, client) and has_only_own(folder)):
            return
        for path in sorted(folder.iterdir(), key=lambda path: path.name == STAMP):  # the stamp last
            path.unlink()
        folder.rmdir()
        folder.parent.rmdir()  # fails if other clients have folders there


def is_stamped(root: Path, run: str, client: int) -> bool:
    """Whether fedmim made this folder for this client in this run."""
    folder = root / run / str(client)
    if not RUN.fullmatch(run) or has_links(folder):
        return False
    path = folder / STAMP
    try:
        return is_plain_file(path) and json.loads(path.read_bytes()) == content(run, client)
    except (OSError, ValueError, RecursionError):
        return False


def content(run: str, client: int) -> dict[str, str | int]:
    """The content of the stamp."""
    return {"made by": MADE_BY, "run": run, "client": client}


def has_only_own(folder: Path) -> bool:
    """Whether a folder has nothing but files that fedmim writes."""
    return all(OWN.fullmatch(path.name) and is_plain_file(path) for path in folder.iterdir())


def has_links(folder: Path) -> bool:
    """Whether the folder of a client or that of its run is a symbolic link."""
    return folder.is_symlink() or folder.parent.is_symlink()


def is_plain_file(path: Path) -> bool:
    """Whether this is a file, and not a link to one."""
    return path.is_file() and not path.is_symlink()
