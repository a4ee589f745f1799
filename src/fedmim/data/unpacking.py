"""Archives to folders. A name in an archive that leads out of the folder is an error."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from fedmim.data.progress_bar import with_progress_bar
from fedmim.errors import UserError


def unpack_archive(archive: Path, folder: Path) -> None:
    """Put the content of a .tar.gz or .zip into `folder`; any other file is copied there as it is."""
    try:
        if archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter=_only_inside)
        elif archive.suffix == ".zip":
            _unzip(archive, folder)
        else:
            shutil.copy(archive, folder)
    except tarfile.FilterError as error:
        raise _leads_out(archive, error.tarinfo.name) from error
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{archive} cannot be unpacked ({error}): delete it and fetch again") from error


def _only_inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    # The filter of tarfile turns absolute names into relative ones; here they are an error, as in a zip.
    if PurePosixPath(member.name).is_absolute():
        raise tarfile.AbsolutePathError(member)
    return tarfile.data_filter(member, folder)


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        # zipfile never writes outside the folder: it changes such names.
        for name in map(PurePosixPath, content.namelist()):
            if name.is_absolute() or ".." in name.parts:
                raise _leads_out(archive, str(name))
        members = content.infolist()
        for member in with_progress_bar(members, len(members), f"unpacking {archive.name}"):
            content.extract(member, folder)  # checks the CRC


def _leads_out(archive: Path, name: str) -> UserError:
    return UserError(f"{archive} was not unpacked: {name!r} in it leads out of its folder")
