"""Sweeps: many runs, one after the other, that can be stopped at any time and resumed.

Several processes can work on one sweep: each takes the next run that is not finished and not locked by another process.

runs/NAME/           the archive of finished runs
unfinished/NAME/     folders of runs in progress, removed when the run is in the archive
models/              the final models, with keep_models
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedmim.experiments.archive import Archive
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import CONFIG, MODEL, RunFolder
from fedmim.experiments.works import Display, Failure, ThisProcess, WorkPool, failures_of
from fedmim.files import folder_lock, holding, make_folder


class Sweep:
    """A folder of runs, identified by their configuration."""

    def __init__(self, path: Path, keep_models: bool = False, every: float = 10.0) -> None:
        self.path = path
        self.archive = Archive(path / "runs")
        self.keep_models = keep_models
        self.every = every  # seconds between checkpoints
        self._lock = folder_lock(path)

    def alone(self) -> AbstractContextManager[None]:
        """Lock the folder against other processes for a short time, to read or write it."""
        make_folder(self.path)
        return holding(self._lock, wait=True)

    def __call__(self, runs: Sequence[Run], display: Display, pool: WorkPool | None = None) -> list[Failure]:
        """Train all runs that are not finished, and return the failures. A failed run does not stop the others.

        The failure of a run that another process has locked is a BusyError.
        """
        return failures_of(self.works(runs), pool or ThisProcess(), display)

    def works(self, runs: Sequence[Run]) -> list[SweepWork]:
        """The work of each run."""
        self._clean_up()
        return [SweepWork(self.path, self.keep_models, self.every, run) for run in distinct(runs)]

    def train(self, run: Run, display: Display) -> None:
        """Train a run, if it is not finished."""
        with self.claimed(run) as folder:
            if folder is None:
                display.skip(run)
            else:
                if folder.train(run.config.task(), partial(display.record, run), self.every):
                    display.skip(run)
                self.add(run, folder)

    @contextmanager
    def claimed(self, run: Run) -> Iterator[RunFolder | None]:
        """Lock and yield the folder of a run; None if the run is finished."""
        with ExitStack() as stack:
            folder = None
            with self.alone():
                if self.archive.records(run) is None:
                    folder = unfinished(self.path / "unfinished" / run.name(), run)
                    stack.enter_context(folder.locked())
            yield folder

    def add(self, run: Run, folder: RunFolder) -> None:
        """Add a run that is finished to the archive."""
        if self.keep_models:
            models = self.path / "models"
            make_folder(models)
            (folder.path / MODEL).replace(models / f"{run.name()}.safetensors")
        self.archive.add(run, folder.metrics())
        self._clean_up()

    def _clean_up(self) -> None:
        """Remove the folders of runs that are in the archive."""
        with self.alone():
            for folder in (self.path / "unfinished").glob("*"):
                if (self.archive.path / folder.name).exists():
                    shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # other runs are in progress, or there is no folder
                (self.path / "unfinished").rmdir()


@dataclass(frozen=True)
class SweepWork:
    """Train a run of a sweep."""

    path: Path
    keep_models: bool
    every: float
    run: Run

    @property
    def folder(self) -> Path:
        """The folder of the sweep."""
        return self.path

    @property
    def _sweep(self) -> Sweep:
        return Sweep(self.path, self.keep_models, self.every)

    def __call__(self, display: Display) -> None:
        """Claim the run, train it and add it to the archive."""
        self._sweep.train(self.run, display)

    def moved(self, folder: Path) -> SweepWork:
        """The same work in another folder."""
        return replace(self, path=folder)

    @contextmanager
    def claimed(self) -> Iterator[RunWork | None]:
        """Claim the run; at the end, add it to the archive."""
        sweep = self._sweep
        with sweep.claimed(self.run) as folder:
            yield RunWork(folder.path, self.run, self.every) if folder else None
            if folder:
                sweep.add(self.run, folder)


@dataclass(frozen=True)
class RunWork:
    """Train a run in its folder. One that diverged is an error."""

    folder: Path
    run: Run
    every: float

    def __call__(self, display: Display) -> None:
        """Train the run."""
        folder = RunFolder(self.folder, self.run)
        if folder.train(self.run.config.task(), partial(display.record, self.run), self.every):
            display.skip(self.run)

    def claimed(self) -> AbstractContextManager[RunWork]:
        """The sweep has claimed it."""
        return nullcontext(self)

    def moved(self, folder: Path) -> RunWork:
        """The same work in another folder."""
        return replace(self, folder=folder)


def unfinished(path: Path, run: Run) -> RunFolder:
    """Reopen the folder of an unfinished run, or create one."""
    if (path / CONFIG).exists():
        return RunFolder.reopen(path, run)
    shutil.rmtree(path, ignore_errors=True)  # left over if a process was killed
    return RunFolder.create(path, run)


def distinct(runs: Sequence[Run]) -> list[Run]:
    """The runs without duplicates."""
    return list({run.identity(): run for run in runs}.values())
