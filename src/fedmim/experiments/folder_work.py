"""The work of training a run in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedmim.errors import DivergedError
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.works import Display

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback
    from fedmim.simulation.record import Record


@dataclass(frozen=True)
class FolderWork:
    """Train a run in its folder, with callbacks."""

    path: Path
    run: Run
    every: float  # seconds between checkpoints
    callbacks: tuple[Callback, ...] = ()

    def __call__(self, display: Display) -> None:
        """Train the run. One that diverged counts as ended: it is shown with the results."""
        from fedmim.simulation.callbacks import RunInfo, telling

        run = self.run
        with telling(self.callbacks, RunInfo.of(self.path.name, run.algorithm, run.config.flat())) as tell:

            def watch(record: Record) -> None:
                display.record(run, record)
                tell(record)

            try:
                RunFolder(self.path, run).train(run.config.task(), watch, self.every)
            except DivergedError:
                display.skip(run)
