"""`fedmim data fetch NAME`: from the official address to the folder of the data set, whole or not at all.

A name in an archive that leads out of the folder is an error.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from fedmim.data.descriptor import DatasetDescriptor
from fedmim.data.download import download_file
from fedmim.data.progress_bar import with_progress_bar
from fedmim.errors import UserError


def fetch_files(descriptor: DatasetDescriptor, directory: Path) -> Path:
    """Download, check and unpack into a temporary folder, which then becomes the folder of the data set.

    Until that last step nothing that the user sees has changed. The archives are deleted after it.
    """
    target = directory / descriptor.folder
    try:
        directory.mkdir(parents=True, exist_ok=True)
        files = [download_file(each, directory) for each in descriptor.downloads]
        with tempfile.TemporaryDirectory(dir=directory, prefix=".unpacking-") as temporary:
            content = Path(temporary) / "content"
            content.mkdir()
            for file in files:
                unpack_archive(file, content)
            inside = content / descriptor.inside
            if not inside.is_dir():
                raise UserError(f"{files[0]} has no folder {descriptor.inside}: delete it and fetch again")
            inside.replace(target)
        for file in files:
            file.unlink()
    except OSError as error:
        # A full disk, or a folder without permission: what was downloaded stays in its .part file.
        raise UserError(
            f"{descriptor.name} could not be stored in {directory} ({error}): make room or give another "
            "--data-dir, and run it again; what was downloaded is kept"
        ) from error
    return target


def unpack_archive(archive: Path, folder: Path) -> None:
    """Put the content of a .tar.gz or .zip into `folder`; any other file is copied there as it is."""
    try:
        if archive.name.endswith(".tar.gz"):
            _untar(archive, folder)
        elif archive.suffix == ".zip":
            _unzip(archive, folder)
        else:
            shutil.copy(archive, folder)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{archive} cannot be unpacked ({error}): delete it and fetch again") from error


def _untar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as content:
        for member in content:
            if not (member.isfile() or member.isdir()):  # a link may lead anywhere
                raise _leads_out(archive, member.name)
            _check_name(archive, member.name)
        # Python before 3.11.4, as in Debian 12, has no filters.
        filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        content.extractall(folder, **filtered)


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        # zipfile never writes outside the folder: it changes such names.
        for name in content.namelist():
            _check_name(archive, name)
        members = content.infolist()
        for member in with_progress_bar(members, len(members), f"unpacking {archive.name}"):
            content.extract(member, folder)  # checks the CRC


def _check_name(archive: Path, name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise _leads_out(archive, name)


def _leads_out(archive: Path, name: str) -> UserError:
    return UserError(f"{archive} was not unpacked: {name!r} in it leads out of its folder")
