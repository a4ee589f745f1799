"""`fedmim data fetch NAME`: from the official address to the loader's folder, whole or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fedmim.data.catalogue import CATALOGUE
from fedmim.data.locate import data_directory
from fedmim.data.sources import SOURCES, Source
from fedmim.data.unpack import unpack
from fedmim.errors import UserError, unknown


def fetch(name: str, data_dir: Path | str | None = None) -> Path:
    """Download a data set into `data_dir` unless it is there, and return its folder."""
    sources = {source.name: source for source in SOURCES}
    if name == "digits":
        raise UserError("digits comes with scikit-learn: there is nothing to fetch")
    if name not in sources:
        raise unknown("data", name, sources)
    directory = data_directory(data_dir)
    entry = next(entry for entry in CATALOGUE if entry.name == name)
    if not (directory / sources[name].folder).exists():
        try:
            return entry.find(directory)  # it may be there in another layout
        except UserError:
            fetch_source(sources[name], directory)
    return entry.find(directory)


def fetch_source(source: Source, directory: Path) -> Path:
    """Download, check and unpack into a temporary folder, which then becomes `directory / source.folder`.

    Until that last step nothing that the user sees has changed; archives are deleted after it.
    """
    from fedmim.data.download import download  # late: it brings in the HTTP client

    target = directory / source.folder
    try:
        directory.mkdir(parents=True, exist_ok=True)
        files = [download(each, directory) for each in source.downloads]
        with tempfile.TemporaryDirectory(dir=directory, prefix=".unpacking-") as temporary:
            content = Path(temporary) / "content"
            content.mkdir()
            for file in files:
                unpack(file, content)
            inside = content / source.inside
            if not inside.is_dir():
                raise UserError(f"{files[0]} has no folder {source.inside}: delete it and fetch again")
            inside.replace(target)
        for file in files:
            file.unlink()
    except OSError as error:
        # A full disk, a folder without permission: what has arrived stays in its .part file.
        raise UserError(
            f"{source.name} could not be stored in {directory} ({error}): make room or give another "
            "--data-dir, and run it again; what was downloaded is kept"
        ) from error
    return target
