"""The work of training a run in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedmim.errors import DivergedError, UserError
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.works import Display

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback
    from fedmim.simulation.record import Record


@dataclass(frozen=True)
class FolderWork:
    """Train a run in its folder, with callbacks."""

    folder: Path
    run: Run
    every: float  # seconds between checkpoints
    callbacks: tuple[Callback, ...] = ()

    def __call__(self, display: Display) -> None:
        """Train the run. One that diverged counts as ended: it is shown with the results."""
        from fedmim.simulation.callbacks import RunInfo, telling

        run, folder = self.run, RunFolder(self.folder, self.run)
        with telling(self.callbacks, RunInfo.of(self.folder.name, run.algorithm, run.config.flat())) as tell:

            def watch(record: Record) -> None:
                display.record(run, record)
                tell(record, folder.model)

            try:
                if folder.train(run.config.task(), watch, self.every):
                    display.skip(run)
            except DivergedError:
                display.skip(run)

    @contextmanager
    def claimed(self) -> Iterator[FolderWork]:
        """Lock the folder."""
        if self.callbacks:
            raise UserError("callback: with --ray, callbacks need a folder that all nodes of the cluster share")
        with RunFolder(self.folder, self.run).locked():
            yield self

    def moved(self, folder: Path) -> FolderWork:
        """The same work in another folder."""
        return replace(self, folder=folder)
