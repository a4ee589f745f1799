"""`fedmim data fetch NAME`: from the official address to the folder of the data set, whole or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fedmim.data import catalogue
from fedmim.data.descriptor import DatasetDescriptor, data_directory
from fedmim.data.unpacking import unpack_archive
from fedmim.errors import UserError, unknown


def fetch(name: str, data_dir: Path | str | None = None) -> Path:
    """Download a data set into `data_dir` unless it is there, and return its folder."""
    descriptors = {each.name: each for each in catalogue.DATA_SETS}
    if name not in descriptors:
        raise unknown("data", name, [each.name for each in catalogue.DATA_SETS if each.downloads])
    descriptor, directory = descriptors[name], data_directory(data_dir)
    if not descriptor.downloads:
        raise UserError(f"{name} needs no download: there is nothing to fetch")
    if not (directory / descriptor.folder).exists():
        try:
            return descriptor.find(directory)  # it may be there in another layout
        except UserError:
            fetch_files(descriptor, directory)
    return descriptor.find(directory)


def fetch_files(descriptor: DatasetDescriptor, directory: Path) -> Path:
    """Download, check and unpack into a temporary folder, which then becomes the folder of the data set.

    Until that last step nothing that the user sees has changed. The archives are deleted after it.
    """
    from fedmim.data.download import download_file  # late: it imports the HTTP client

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
