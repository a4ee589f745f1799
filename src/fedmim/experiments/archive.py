"""The archive of finished runs: one run folder each, with only the configuration and the metrics.

Floats are stored with six digits, and fields that reports do not need (such as the client ids) are omitted. Hundreds of
runs take a few megabytes. Each folder is written atomically: a run is either completely in the archive or not at all.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedmim.errors import UserError
from fedmim.experiments.metrics_file import ADDED, CLIENT_QUANTILES
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import CONFIG, METRICS, Records, RunFolder
from fedmim.experiments.toml_values import parse_toml
from fedmim.files import make_folder, sync_folder, write_text, writing

KEPT = {
    "round": int,
    "test_accuracy": float,
    "test_loss": float,
    "train_loss": float,
    "consistency": float,
    "bytes_up": int,
    "bytes_down": int,
    "refused": int,
    "seconds": float,
    "epsilon": float,
    "simulated_time": float,
    "steps_mean": float,
    "clients_mean": float,
    "clients_worst": float,
    "clients_std": float,
    "personal_mean": float,
    **dict.fromkeys(CLIENT_QUANTILES, float),
}


@dataclass(frozen=True)
class Archive:
    """A folder of finished runs."""

    path: Path

    def records(self, run: Run) -> Records | None:
        """The records of the finished run with exactly this configuration; None if there is none."""
        path = self.path / run.name()
        if not path.is_dir():
            return None
        folder = RunFolder.open(path)
        if folder.run.method != run.method or folder.run.with_code().identity() != run.identity():
            raise UserError(f"{path}: contains a different run than its name says; remove it")
        return folder.metrics()

    def add(self, run: Run, records: Sequence[dict[str, Any]]) -> None:
        """Add a finished run."""
        made_by = f"# fedmim {version('fedmim')}, torch {version('torch')}\n"
        # Without data_dir, which is a path on this machine.
        self._write(run.name(), made_by + run.replace(data_dir=None).to_toml(), records)

    def _write(self, name: str, config: str, records: Sequence[dict[str, Any]]) -> None:
        part = self.path / f".{name}.part"
        shutil.rmtree(part, ignore_errors=True)  # left over if a process was killed
        make_folder(part)
        write_text(part / CONFIG, config)
        kept = [{name: _short(record[name]) for name in KEPT if name in record} for record in records]
        lines = [json.dumps(each, separators=(",", ":")) for each in kept]
        write_text(part / METRICS, "".join(f"{line}\n" for line in lines))
        with writing(self.path / name):
            part.replace(self.path / name)
        sync_folder(self.path)  # before the folder of the run is removed

    def convert(self) -> None:
        """Convert files of an earlier version (CSV with the configuration in comments) to run folders."""
        for path in sorted(self.path.glob("*.csv")):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            head = [line.removeprefix("#").removeprefix(" ") for line in lines if line.startswith("#")]
            if not head or not head[0].startswith("# fedmim "):
                continue
            try:
                if any("\ufffd" in line for line in lines):
                    raise ValueError("it is not UTF-8")
                run = Run.from_toml(parse_toml("\n".join(head)), str(path))
                rows = csv.DictReader(line for line in lines if not line.startswith("#"))
                records = [
                    {name: _parsed(row[name], kind) for name, kind in KEPT.items() if name not in ADDED} for row in rows
                ]
            except (KeyError, ValueError, TypeError, csv.Error) as error:
                raise UserError(f"{path}: not a run of this archive ({error}); remove it") from error
            if not (self.path / path.stem).exists():  # the run keeps its name
                self._write(path.stem, f"{head[0]}\n{run.to_toml()}", records)
            path.unlink()


def _parsed(text: str, kind: type) -> Any:
    value = None if text == "" else kind(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
