"""Find runs below folders and load their records once. Runs that cannot be read are skipped with a warning."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fedmim.algorithms import METHODS
from fedmim.errors import UserError
from fedmim.experiments.comparison import COMPARISON, Comparison
from fedmim.experiments.methods import split_name
from fedmim.experiments.metrics_file import read_records
from fedmim.experiments.run_folder import CONFIG, METRICS, Records, RunFolder
from fedmim.results.method_results import RunResult
from fedmim.results.record_columns import RecordColumns

Warn = Callable[[str], None]


def records_of(folder: RunFolder) -> Records:
    """The records of a run."""
    return RecordColumns(read_records(folder.path / METRICS))


def load_results(
    folders: Sequence[RunFolder], warn: Warn | None = None, read: Callable[[RunFolder], Records] = records_of
) -> list[RunResult]:
    """Load the records of runs. Each file is read once; everything else works on the returned objects.

    With `warn`, runs with damaged records are skipped with a warning. Without it, they raise UserError.
    """
    results = []
    for folder in folders:
        try:
            results.append(RunResult(folder.run, folder.path, read(folder)))
        except UserError as error:
            if warn is None:
                raise
            warn(str(error))
    if folders and not results:
        raise UserError(f"{folders[0].path}: none of the runs here can be read")
    return results


def find_runs(
    paths: Sequence[Path], warn: Warn, open_folder: Callable[[Path], RunFolder] = RunFolder.open
) -> list[RunFolder]:
    """The runs at or below these paths, each once. Runs that cannot be read are skipped with a warning."""
    folders: dict[Path, RunFolder] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder")
        found = []
        for place in folders_below(path, warn):
            try:
                found.append(open_folder(place))
            except UserError as error:
                warn(str(error))
            except OSError as error:
                warn(f"{error.filename}: {error.strerror}")
        folders |= {folder.path.resolve(): folder for folder in sorted(found, key=_order(warn))}
    if not folders:
        raise UserError(f"{', '.join(map(str, paths))}: there are no runs here ({CONFIG} is in none of the folders)")
    return list(folders.values())


def folders_below(path: Path, warn: Warn) -> list[Path]:
    """The run folders at or below a path. Run folders are not searched further, and links are not followed."""
    found = []
    for folder, inner, files in os.walk(path, onerror=lambda error: warn(f"{error.filename}: {error.strerror}")):
        if CONFIG in files:
            found.append(Path(folder))
            inner.clear()
    return sorted(found)


def _order(warn: Warn) -> Callable[[RunFolder], Any]:
    """Sort key: folders by name; in a folder, the order of the comparison, or else method, label and seed."""

    @cache
    def places(parent: Path) -> dict[str, int]:
        if not os.path.lexists(parent / COMPARISON):
            return {}
        try:
            return {name: place for place, name in enumerate(Comparison.open(parent).folder_names())}
        except UserError as error:
            reason = str(error)
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}"
        warn(f"{reason}; the order and the target of the comparison are unknown")
        return {}

    def key(folder: RunFolder) -> Any:
        run, parent, name = folder.run, folder.path.parent, folder.path.name
        listed = places(parent)
        place = listed.get(name, len(listed))  # runs that are not listed come last
        base = split_name(run.method)[0]
        method = [*METHODS, base].index(base)
        return natural_order(str(parent)), place, method, natural_order(run.label), run.config.settings.seed

    return key


def natural_order(text: str) -> list[tuple[int, str]]:
    """A key that sorts run-2 before run-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]
