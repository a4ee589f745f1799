"""Finding runs below folders, and loading their records once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fedmim.algorithms import METHODS
from fedmim.errors import UserError
from fedmim.experiments.comparison import Comparison
from fedmim.experiments.methods import split_name
from fedmim.experiments.run_folder import CONFIG, Records, RunFolder
from fedmim.results.method_results import RunResult

ReadRecords = Callable[[RunFolder], Records]


def load_runs(folders: Sequence[RunFolder], read: ReadRecords = lambda folder: folder.metrics()) -> list[RunResult]:
    """The runs with their records. Each file is read once; everything else works on what is returned."""
    return [RunResult(folder.run, folder.path, read(folder)) for folder in folders]


def find_runs(paths: Sequence[Path], warn: Callable[[str], None]) -> list[RunFolder]:
    """The runs at or below these paths, each once. A run that cannot be read is left out, with a warning."""
    folders: dict[Path, RunFolder] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder")
        found = []
        for place in folders_below(path):
            try:
                found.append(RunFolder.open(place))
            except UserError as error:
                warn(f"left out: {error}")
        folders |= {folder.path.resolve(): folder for folder in sorted(found, key=_order())}
    if not folders:
        raise UserError(f"{', '.join(map(str, paths))}: there are no runs here ({CONFIG} is in none of the folders)")
    return list(folders.values())


def folders_below(path: Path) -> list[Path]:
    """The folders of runs at or below a path, without looking into them."""
    found = []
    for folder, inner, files in os.walk(path):
        if CONFIG in files:
            found.append(Path(folder))
            inner.clear()
    return sorted(found)


def _order() -> Callable[[RunFolder], Any]:
    """A comparison's runs come in its own order, others by method, label and seed; folders by name."""

    @cache
    def listed(parent: Path) -> list[str]:
        try:
            return [name for name, _ in Comparison.open(parent).jobs()]
        except UserError:  # no comparison, or one of another version: only the order is lost
            return []

    def key(folder: RunFolder) -> Any:
        run, parent, name = folder.run, folder.path.parent, folder.path.name
        place = [*listed(parent), name].index(name)  # one that is not listed comes last
        base = split_name(run.method)[0]
        method = [*METHODS, base].index(base)
        return natural_order(str(parent)), place, method, natural_order(run.label), run.config.settings.seed

    return key


def natural_order(text: str) -> list[tuple[int, str]]:
    """A key that sorts run-2 before run-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]
