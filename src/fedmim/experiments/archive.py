"""A finished run as one small CSV file: its configuration in comment lines, then a line a round.

# method = "fedmim"           the configuration as TOML, behind "# "
# ...
round,test_accuracy,...       pandas.read_csv(path, comment="#") reads the rest

Written whole or not at all, so a run is in the archive or it is not. Models are not kept here.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedmim.algorithms import Algorithm
from fedmim.errors import UserError
from fedmim.experiments.config import Config
from fedmim.experiments.methods import Run
from fedmim.experiments.runs import RunFolder
from fedmim.files import write_text

COLUMNS = {
    "round": int,
    "test_accuracy": float,
    "test_loss": float,
    "train_loss": float,
    "consistency": float,
    "bytes_up": int,
    "bytes_down": int,
    "refused": int,
    "seconds": float,
}
# Where and how a run is computed says nothing about what it is.
CIRCUMSTANCES = ("data_dir", "engine", "workers", "device")

MADE_BY = "# fedmim"  # how the comment of a file begins

Records = list[dict[str, Any]]


def identity(run: Run) -> str:
    """The configuration of a run as text, circumstances and label aside: equal for equal runs alone.

    What is at its default is left out, so that a setting which is new in a later version makes no other run of it.
    """
    hyper_parameters, settings = _changed(run.algorithm), _changed(run.config)
    settings = {name: value for name, value in settings.items() if name not in CIRCUMSTANCES}
    return json.dumps([run.method, hyper_parameters, settings], sort_keys=True)


def _changed(instance: Algorithm | Config) -> dict[str, Any]:
    values = {field.name: (getattr(instance, field.name), field.default) for field in fields(instance)}
    return {name: value for name, (value, default) in values.items() if value != default}


def digest(text: str) -> str:
    """Eight letters for a text."""
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def name_of(run: Run) -> str:
    """A file name that a reader understands and that no other configuration has."""
    config = run.config
    words = (config.data, config.split, run.method.split("/")[-1], f"seed{config.seed}", digest(identity(run)))
    return "-".join(re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-.") for word in words)


@dataclass(frozen=True)
class Archive:
    """A folder of finished runs."""

    path: Path

    def file(self, run: Run) -> Path:
        """Where a run is, or would be."""
        return self.path / f"{name_of(run)}.csv"

    def records(self, run: Run) -> Records | None:
        """The rounds of a finished run of exactly this configuration; None where there is none."""
        path = self.file(run)
        if not path.is_file():
            return None
        found, records = read(path)
        if identity(found) != identity(run):
            raise UserError(f"{path}: holds another run than its name says; remove it")
        return records

    def add(self, run: Run, records: Sequence[dict[str, Any]]) -> None:
        """Keep a finished run."""
        self.path.mkdir(parents=True, exist_ok=True)
        run = replace(run, config=replace(run.config, data_dir=None))  # a path of this machine alone
        head = f"{MADE_BY} {version('fedmim')}, torch {version('torch')}\n{run.to_toml()}"
        text = io.StringIO()
        text.writelines(f"# {line}".rstrip() + "\n" for line in head.splitlines())
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(COLUMNS)
        lines.writerows([_short(record[name]) for name in COLUMNS] for record in records)
        write_text(self.file(run), text.getvalue())


class ArchivedRun(RunFolder):
    """A finished run of an archive, read as a run folder is."""

    @classmethod
    def open(cls, path: Path) -> ArchivedRun:
        """A file of the archive."""
        return cls(path, read(path)[0])

    def metrics(self) -> Records:
        """The records of all rounds."""
        return read(self.path)[1]


def read(path: Path) -> tuple[Run, Records]:
    """A file of the archive."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line.removeprefix("#").removeprefix(" ") for line in lines if line.startswith("#")]
    try:
        run = Run.from_toml(tomllib.loads("\n".join(head)), str(path))
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        records = [
            {name: None if row[name] == "" else kind(row[name]) for name, kind in COLUMNS.items()} for row in rows
        ]
    except (tomllib.TOMLDecodeError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a run of this archive ({error}); remove it") from error
    return run, records


def archived_below(path: Path) -> list[Path]:
    """The files of archives at or below a folder."""
    return sorted(file for file in path.rglob("*.csv") if _opening(file).startswith(f"# {MADE_BY}"))


def _opening(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline()


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
