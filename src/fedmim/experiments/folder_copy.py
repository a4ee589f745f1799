"""Copies of a run's folder between machines that share no disk: the files that changed, in an order that is safe.

A copy is made when a checkpoint has been written, so it can be resumed, even if the machine that makes or receives it
is lost in the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fedmim.errors import UserError
from fedmim.files import LOCK, make_folder, remove, replacing, sync_folder
from fedmim.simulation.checkpoint import CHECKPOINT_FILE, PREVIOUS_FILE

FileStamp = tuple[int, int, int]  # size, time of the last change, and inode of a file


@dataclass(frozen=True)
class ChangedFiles:
    """The content of the files that changed, and the names of those that were removed; paths in the folder."""

    content: dict[str, bytes] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)  # new name -> name of the file that has its content so far

    def write(self, folder: Path) -> None:
        """Apply the changes to a folder. Checkpoints come last, since they refer to other files."""
        for name in sorted((*self.renamed, *self.content), key=_place):
            path = _inside(folder, name)
            make_folder(path.parent)
            before = self.renamed.get(name)
            content = self.content[name] if before is None else _inside(folder, before).read_bytes()
            with replacing(path) as temporary:
                temporary.write_bytes(content)
            sync_folder(path.parent)
        for name in self.removed:
            remove(_inside(folder, name))


def read_files(folder: Path) -> ChangedFiles:
    """All files of a folder."""
    return ChangedFiles({name: (folder / name).read_bytes() for name in stamps(folder)})


class FolderWatch:
    """Finds what has changed in a folder since the last time, and sends it."""

    def __init__(self, folder: Path, send: Callable[[ChangedFiles], None]) -> None:
        self._folder, self._send = folder, send
        self._known = stamps(folder)

    def look(self, *, all: bool = False) -> None:
        """Send the changes if a new checkpoint is among them; with `all`, send any."""
        now = stamps(self._folder)
        changed = [name for name, stamp in now.items() if self._known.get(name) != stamp]
        removed = tuple(name for name in self._known if name not in now)
        if not (changed or removed) or not (all or any(name.endswith(CHECKPOINT_FILE) for name in changed)):
            return
        before = {stamp: name for name, stamp in self._known.items() if name.endswith(CHECKPOINT_FILE)}
        renamed = {name: before[now[name]] for name in changed if now[name] in before}  # the previous checkpoint
        content = {name: (self._folder / name).read_bytes() for name in changed if name not in renamed}
        self._send(ChangedFiles(content, removed, renamed))
        self._known = now


def stamps(folder: Path) -> dict[str, FileStamp]:
    """The files of a folder, without locks and temporary files, and what shows that they have changed."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != LOCK and not path.name.endswith(".part"):
            status = path.stat()
            name = path.relative_to(folder).as_posix()
            found[name] = status.st_size, status.st_mtime_ns, status.st_ino
    return found


def _place(name: str) -> tuple[int, str]:
    last = (PREVIOUS_FILE, CHECKPOINT_FILE)
    base = PurePosixPath(name).name
    return (1 + last.index(base) if base in last else 0, name)


def _inside(folder: Path, name: str) -> Path:
    """The path of a file; names from elsewhere must stay in the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{name!r}: a node sent a file outside of the folder of its run")
    return folder / path
