"""`fedmim data fetch NAME`: download a data set from its official address and unpack it atomically.

Names in an archive that lead out of the folder are rejected.
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

LARGEST_CONTENT = 4 << 30  # bytes of an unpacked archive; the largest, Tiny ImageNet, has 0.5 GB
LARGEST_STEP = 16 << 20  # bytes read at once
ENCRYPTED = 1  # flag bit of a zip entry


def fetch_files(descriptor: DatasetDescriptor, directory: Path) -> Path:
    """Download, check and unpack into a temporary folder, then rename it to the folder of the data set.

    The archives are deleted at the end.
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
        # A full disk or missing permission: downloaded bytes stay in the .part file.
        raise UserError(
            f"{descriptor.name} could not be stored in {directory} ({error}): free disk space or use another "
            "--data-dir, and run it again; downloaded files are kept"
        ) from error
    return target


def unpack_archive(archive: Path, folder: Path) -> None:
    """Unpack a .tar.gz or .zip into `folder`; copy any other file there."""
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
            raise  # a disk error
        raise UserError(f"{archive} cannot be unpacked ({error}): delete it and fetch again") from error


class _Stream:
    """A gzipped file with limits on the size of a read and of the content, which tar and gzip headers do not limit."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LARGEST_STEP or self.file.tell() > LARGEST_CONTENT:
            raise tarfile.ReadError("its content is larger than any data set")
        return self.file.read(size)

    def seek(self, position: int) -> int:
        if not 0 <= position <= LARGEST_CONTENT:
            raise tarfile.ReadError("its content is larger than any data set")
        return self.file.seek(position)

    def tell(self) -> int:
        return self.file.tell()


def _untar(archive: Path, folder: Path) -> None:
    with gzip.open(archive) as file, tarfile.open(fileobj=(stream := _Stream(file)), mode="r:") as content:  # type: ignore[call-overload]
        for member in content:
            if not (member.isfile() or member.isdir()):  # a link may point anywhere
                raise _leads_out(archive, member.name)
            _check_name(archive, member.name)
            _check_size(archive, member.size)
        while stream.read(1 << 20):  # reading to the end verifies the checksum
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
            if member.flag_bits & ENCRYPTED:
                raise UserError(f"{archive} was not unpacked: {member.filename!r} in it is encrypted")
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):  # a link, which zipfile would write as a text file
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
        raise UserError(f"{archive} was not unpacked: its content of {size:,} bytes is larger than any data set")


def _leads_out(archive: Path, name: str) -> UserError:
    return UserError(f"{archive} was not unpacked: {name!r} in it leads out of its folder")
