"""Sweeps: many runs, one after the other, that may be stopped at any instant and started again.

Several processes may work on one sweep: each takes the next run that is neither finished nor in another's hands.

runs/NAME/           the archive of finished runs
unfinished/NAME/     run folders of those in progress, which go when the run is in the archive
models/              the final models, if they are to be kept
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedmim.errors import UserError
from fedmim.experiments.archive import Archive
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import CONFIG, MODEL, RunFolder, Watch
from fedmim.files import folder_lock, holding, make_folder

if TYPE_CHECKING:
    from fedmim.simulation.record import Record


class Display(Protocol):
    """What is told of runs in progress."""

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""

    def skip(self, run: Run) -> None:
        """A run was finished before, or goes no further."""


@dataclass(frozen=True)
class Failure:
    """A run that did not end, and why."""

    run: Run
    error: Exception

    def __str__(self) -> str:
        problem, seed = self.run.config.problem, self.run.config.settings.seed
        notes = "".join(f", {note}" for note in getattr(self.error, "__notes__", []))
        kind = "" if isinstance(self.error, UserError) else f"{type(self.error).__name__}: "
        return f"{self.run.label}, {problem.data}, {problem.split}, seed {seed}: {kind}{self.error}{notes}"


class Sweep:
    """Runs by their configuration, in a folder."""

    def __init__(self, path: Path, keep_models: bool = False, every: float = 10.0) -> None:
        self.path = path
        self.archive = Archive(path / "runs")
        self.keep_models = keep_models
        self.every = every  # seconds between checkpoints
        self._lock = folder_lock(path)

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder for a moment, in which it is looked through or written to."""
        make_folder(self.path)
        return holding(self._lock, wait=True)

    def __call__(self, runs: Sequence[Run], display: Display) -> list[Failure]:
        """Do what is not yet done; a run that fails does not stop the others, nor does one that another process has
        in hand, whose failure is a BusyError."""
        self._clean_up()
        failures = []
        for run in distinct(runs):
            try:
                with self._claimed(run) as folder:
                    if folder is None:
                        display.skip(run)
                    else:
                        self._finish(run, folder, partial(display.record, run))
            except Exception as error:
                failures.append(Failure(run, error))
                display.skip(run)
        return failures

    @contextmanager
    def _claimed(self, run: Run) -> Iterator[RunFolder | None]:
        """The folder of a run, out of the others' reach; None if the run is finished."""
        with ExitStack() as stack:
            folder = None
            with self.alone():
                if self.archive.records(run) is None:
                    folder = unfinished(self.path / "unfinished" / run.name(), run)
                    stack.enter_context(folder.locked())
            yield folder

    def _finish(self, run: Run, folder: RunFolder, watch: Watch) -> None:
        folder.train(run.config.task(), watch, self.every)
        if self.keep_models:
            models = self.path / "models"
            make_folder(models)
            (folder.path / MODEL).replace(models / f"{run.name()}.safetensors")
        self.archive.add(run, folder.metrics())
        self._clean_up()

    def _clean_up(self) -> None:
        """Remove the folders of runs that are in the archive, also those that a kill left there."""
        with self.alone():
            for folder in (self.path / "unfinished").glob("*"):
                if (self.archive.path / folder.name).exists():
                    shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # others are in progress, or there is nothing
                (self.path / "unfinished").rmdir()


def unfinished(path: Path, run: Run) -> RunFolder:
    """The folder of a run that was begun, to go on with this execution, or a new one."""
    if (path / CONFIG).exists():
        return RunFolder.reopen(path, run)
    shutil.rmtree(path, ignore_errors=True)  # a kill in the making of the folder
    return RunFolder.create(path, run)


def distinct(runs: Sequence[Run]) -> list[Run]:
    """The runs, each configuration once."""
    return list({run.identity(): run for run in runs}.values())
