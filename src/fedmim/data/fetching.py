"""`fedmim data fetch NAME`: from the official address to the folder of the data set, whole or not at all.

A name in an archive that leads out of the folder is an error.
"""

from __future__ import annotations

import gzip
import shutil
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from fedmim.data.descriptor import DatasetDescriptor
from fedmim.data.download import download_file
from fedmim.data.progress_bar import with_progress_bar
from fedmim.errors import UserError

LARGEST_CONTENT = 4 << 30  # bytes of an unpacked archive; the largest, of Tiny ImageNet, has 0.5 GB
LARGEST_STEP = 16 << 20  # bytes read at once


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
    except UserError:
        raise
    except Exception as error:  # a damaged archive can raise nearly anything
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise  # of the disk
        raise UserError(f"{archive} cannot be unpacked ({error}): delete it and fetch again") from error


class _Stream:
    """What a gzipped file unpacks to, in steps of a bounded size, up to a bounded end: tarfile's headers and the
    gzip format allow any number there."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LARGEST_STEP or self.file.tell() > LARGEST_CONTENT:
            raise tarfile.ReadError("it unpacks to more than a data set has")
        return self.file.read(size)

    def seek(self, position: int) -> int:
        if not 0 <= position <= LARGEST_CONTENT:
            raise tarfile.ReadError("it unpacks to more than a data set has")
        return self.file.seek(position)

    def tell(self) -> int:
        return self.file.tell()


def _untar(archive: Path, folder: Path) -> None:
    with gzip.open(archive) as file, tarfile.open(fileobj=(stream := _Stream(file)), mode="r:") as content:  # type: ignore[call-overload]
        for member in content:
            if not (member.isfile() or member.isdir()):  # a link may lead anywhere
                raise _leads_out(archive, member.name)
            _check_name(archive, member.name)
            _check_size(archive, member.size)
        while stream.read(1 << 20):  # to the end of the gzipped file, where its checksum is compared
            pass
        # Python before 3.11.4, as in Debian 12, has no filters.
        filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        content.extractall(folder, **filtered)


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        # zipfile never writes outside the folder: it changes such names.
        members = content.infolist()
        for member in members:
            _check_name(archive, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):  # a link, which zipfile would write as a text
                raise _leads_out(archive, member.filename)
        _check_size(archive, sum(member.file_size for member in members))
        for member in with_progress_bar(members, len(members), f"unpacking {archive.name}"):
            content.extract(member, folder)  # checks the CRC


def _check_name(archive: Path, name: str) -> None:
    for path in (PurePosixPath(name), PureWindowsPath(name)):
        if path.anchor or path.drive or ".." in path.parts or "\0" in name:
            raise _leads_out(archive, name)


def _check_size(archive: Path, size: int) -> None:
    if not 0 <= size <= LARGEST_CONTENT:
        raise UserError(f"{archive} was not unpacked: it announces {size:,} bytes, more than a data set has")


def _leads_out(archive: Path, name: str) -> UserError:
    return UserError(f"{archive} was not unpacked: {name!r} in it leads out of its folder")
