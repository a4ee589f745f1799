"""Recording: the run folder of a run whose rounds come from elsewhere, for example from a Flower federation.

The files are those of `run_folder`, except that the other side writes the checkpoints, one after each round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedmim.errors import UserError
from fedmim.experiments.client_labels import CLIENT_LABELS, write_client_labels
from fedmim.experiments.metrics_file import cut_records
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import CONFIG, METRICS, MODEL, RunFolder, jsonable
from fedmim.files import AppendedLines, folder_lock, holding, read_metadata, remove, sync_folder, write_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from fedmim.simulation.record import Record
    from fedmim.simulation.task import Task


class Recording:
    """A run folder to which somebody else's rounds are added.

    with Recording(folder, run, task, resume) as recording:
        ...                                             # rounds, with `resume=recording.resumes`
        recording.add(record)                           # after each round
    save_state(model.state_dict(), folder / MODEL, rounds)
    """

    def __init__(self, path: Path, run: Run, task: Task, resume: bool) -> None:
        if not resume:
            _clear_unused(path)
        there = (path / CONFIG).exists()
        if there and not resume:
            raise UserError(f"folder: {path} already contains a run; set resume=true, or name a different folder")
        if resume and not there:
            raise UserError(f"folder: {path} has no run to resume; set resume=false to start it")
        self.path, self._task = path, task
        self._folder = RunFolder.reopen(path, run) if there else RunFolder.create(path, run)
        self._done = self._folder.rounds_done()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._folder.locked())
        self._folder.save_config()
        self._drop_unrecorded()
        if not (self.path / CLIENT_LABELS).exists():
            write_client_labels(self._task, self.path)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def resumes(self) -> bool:
        """Whether there is a checkpoint to continue from. A run that died in its first round has none."""
        from fedmim.simulation.checkpoint import has_checkpoint

        return has_checkpoint(self.path)

    def add(self, record: Record) -> None:
        """Append the record of a round. Records of this and later rounds, which are repeated, are replaced."""
        if record.round > self._done + 1:
            raise UserError(f"{self.path / METRICS}: has {self._done} records, but round {record.round} ended")
        if record.round <= self._done or not (self.path / METRICS).exists():
            cut_records(self.path / METRICS, record.round - 1)
        with AppendedLines(self.path / METRICS) as metrics:
            metrics.add(json.dumps(jsonable(record)))
            metrics.sync()
        self._done = record.round

    def _drop_unrecorded(self) -> None:
        """Go back from a checkpoint whose round has no record: the run was killed between the two, and repeats it."""
        from fedmim.simulation.checkpoint import CHECKPOINT_FILE, PREVIOUS_FILE

        try:
            facts: dict[str, Any] = json.loads(read_metadata(self.path / CHECKPOINT_FILE)["facts"])
            unrecorded = int(facts["round"]) > self._done
        except (OSError, ValueError, KeyError, TypeError):  # missing or damaged: the previous one is used
            return
        if unrecorded and (self.path / PREVIOUS_FILE).exists():
            (self.path / PREVIOUS_FILE).replace(self.path / CHECKPOINT_FILE)
        elif unrecorded:
            remove(self.path / CHECKPOINT_FILE)


def _clear_unused(path: Path) -> None:
    """Remove what a run left behind that ended before its first round, for example because clients were missing."""
    from fedmim.simulation.checkpoint import has_checkpoint

    if not (path / CONFIG).is_file():
        return
    with holding(folder_lock(path)):
        if not (has_checkpoint(path) or (path / METRICS).exists() or (path / MODEL).exists()):
            remove(path / CLIENT_LABELS)
            remove(path / CONFIG)


def save_state(state: Mapping[str, Tensor], path: Path, round: int) -> None:
    """Write a model's state_dict and the number of its round."""
    write_tensors(path, {name: tensor.detach().clone() for name, tensor in state.items()}, {"round": str(round)})
    sync_folder(path.parent)
