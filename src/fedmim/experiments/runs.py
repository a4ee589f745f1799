"""Run folders: configuration, metrics, checkpoint and final model of one run, each written whole or not at all.

config.toml               the full configuration
metrics.jsonl             one record a round, appended as it ends
clients.json              how many samples of each class each client holds
checkpoint.safetensors    the state of the run, with clients/ beside it
model.safetensors         the final model under its state_dict names
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmim.errors import UserError
from fedmim.experiments.config import read_toml
from fedmim.experiments.methods import Run
from fedmim.experiments.skew import FILE as SKEW
from fedmim.experiments.skew import write_skew
from fedmim.files import locked, write_tensors, write_text

if TYPE_CHECKING:
    from fedmim.simulation.loop import Record
    from fedmim.simulation.task import Task

CONFIG, METRICS, MODEL = "config.toml", "metrics.jsonl", "model.safetensors"

Watch = Callable[["Record"], None]


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path, run: Run) -> None:
        self.path = path
        self.run = run
        self._held = False

    @classmethod
    def create(cls, path: Path, run: Run) -> RunFolder:
        """A new run in a folder that does not exist yet or is empty."""
        if path.exists() and not path.is_dir():
            raise UserError(f"{path}: is a file; give another --out")
        if (path / CONFIG).exists():
            raise UserError(f"{path}: holds a run already; add --resume to go on with it, or give another --out")
        if path.exists() and any(path.iterdir()):
            raise UserError(f"{path}: is not empty; give another --out")
        path.mkdir(parents=True, exist_ok=True)
        write_text(path / CONFIG, run.to_toml())
        return cls(path, run)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run."""
        if not (path / CONFIG).is_file():
            raise UserError(f"{path}: there is no run here ({CONFIG} is missing)")
        return cls(path, Run.from_toml(read_toml(path / CONFIG), str(path / CONFIG)))

    @staticmethod
    def config_of(path: Path) -> Path:
        """The file with the configuration of a run."""
        return path / CONFIG

    def extend(self, rounds: int) -> None:
        """More (or fewer) rounds than first configured; all else of a run is fixed."""
        (self.path / MODEL).unlink(missing_ok=True)  # it is no longer the final one
        self.run = replace(self.run, config=replace(self.run.config, rounds=rounds))
        write_text(self.path / CONFIG, self.run.to_toml())

    @property
    def finished(self) -> bool:
        """Whether the last round has ended and the model is written."""
        return (self.path / MODEL).exists() and len(self.metrics()) >= self.run.config.rounds

    def metrics(self) -> list[dict[str, Any]]:
        """The records so far; a last line that was cut off in writing is left out."""
        path = self.path / METRICS
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")
        records = []
        for number, line in enumerate(lines[:-1], start=1):
            try:
                records.append(json.loads(line))
                if records[-1]["round"] != number:
                    raise ValueError(f"round {number} is missing")
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{path}: line {number} is damaged ({error}); remove it and what follows") from error
        return records

    def train(self, task: Task, watch: Watch | None = None, every: float = 10.0) -> list[dict[str, Any]]:
        """Run or go on to the last round; the records of all rounds. A kill at any instant loses no finished work
        but the rounds since the last checkpoint, which --resume repeats to the same bits."""
        from fedmim.simulation.checkpoint import FILE
        from fedmim.simulation.loop import rounds

        with self.locked():
            run = self.run
            resume = (self.path / FILE).exists()
            training = rounds(run.algorithm, task, run.config, folder=self.path, resume=resume)
            self._cut_metrics(training.state.round)
            if not (self.path / SKEW).exists():
                write_skew(task, self.path)
            saved = time.monotonic()
            with (self.path / METRICS).open("a", encoding="utf-8") as metrics:

                def save() -> None:
                    os.fsync(metrics.fileno())  # the records of a checkpoint reach the disk before it does
                    training.save()

                try:
                    for record in training:
                        metrics.write(json.dumps(jsonable(record)) + "\n")
                        metrics.flush()
                        if watch:
                            watch(record)
                        if time.monotonic() - saved >= every:
                            save()
                            saved = time.monotonic()
                except KeyboardInterrupt:
                    with suppress(OSError):
                        save()
                    raise
                save()
            save_model(training.model, self.path / MODEL)
            return self.metrics()

    def _cut_metrics(self, rounds: int) -> None:
        """Forget the records after the checkpoint, whose rounds are repeated."""
        records = self.metrics()
        if len(records) < rounds:
            raise UserError(f"{self.path / METRICS}: {rounds} rounds are in the checkpoint and {len(records)} here")
        write_text(self.path / METRICS, "".join(json.dumps(record) + "\n" for record in records[:rounds]))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of this run; who holds it already may enter again."""
        if self._held:
            yield
            return
        with locked(self.path):
            self._held = True
            try:
                yield
            finally:
                self._held = False


def jsonable(record: Record) -> dict[str, Any]:
    """A record as JSON has it: numbers that are not finite become null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(record).items()
    }


def save_model(model: Any, path: Path) -> None:
    """The model under its state_dict names, so that load_state_dict takes it."""
    write_tensors(path, {name: tensor.detach().clone() for name, tensor in model.state_dict().items()})


def differences(ours: Run, theirs: Run) -> list[str]:
    """The settings in which two runs differ, the number of rounds aside."""
    names = [
        field.name
        for field in fields(ours.config)
        if field.name != "rounds" and getattr(ours.config, field.name) != getattr(theirs.config, field.name)
    ]
    if ours.method != theirs.method:
        return ["method", *names]
    return names + [
        field.name
        for field in fields(ours.algorithm)
        if getattr(ours.algorithm, field.name) != getattr(theirs.algorithm, field.name)
    ]
