"""Archives to folders, without trust in the names inside them."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

from fedmim.errors import UserError


def unpack(archive: Path, folder: Path) -> None:
    """Put the content of a .tar.gz or .zip into `folder`; any other file is copied there as it is."""
    try:
        if archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as tar:
                for member in tar:
                    if _leads_out(member.name) or not (member.isfile() or member.isdir()):
                        raise UserError(f"{archive} was not unpacked: {member.name!r} in it leads out of its folder")
                filtered = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from Python 3.11.4 on
                tar.extractall(folder, **filtered)  # type: ignore[arg-type]
        elif archive.suffix == ".zip":
            _unzip(archive, folder)
        else:
            shutil.copy(archive, folder)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{archive} cannot be unpacked ({error}): delete it and fetch again") from error


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        members = content.infolist()
        for member in members:
            if _leads_out(member.filename):
                raise UserError(f"{archive} was not unpacked: {member.filename!r} in it leads out of its folder")
        for member in _shown(members, archive.name):
            content.extract(member, folder)  # checks the CRC


def _leads_out(name: str) -> bool:
    paths = PurePosixPath(name), PureWindowsPath(name)
    return any(path.is_absolute() or path.drive or ".." in path.parts for path in paths)


def _shown(members: list[zipfile.ZipInfo], name: str) -> Iterable[zipfile.ZipInfo]:
    if len(members) < 2000:
        return members
    from rich.console import Console
    from rich.progress import track

    return track(members, f"unpacking {name}", console=Console(stderr=True), transient=True)
