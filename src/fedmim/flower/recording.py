"""The run folder of a Flower run: the files of `fedmim run`, so that `fedmim report`, `plot` and `watch` read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmim.errors import UserError
from fedmim.experiments.config import Config, Problem
from fedmim.experiments.methods import method_name
from fedmim.experiments.metrics_file import cut_records
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import CONFIG, METRICS, MODEL, RunFolder, jsonable, save_model
from fedmim.files import AppendedLines, remove_parts, sync_folder
from fedmim.simulation.checkpoint import has_checkpoint
from fedmim.simulation.record import Record
from fedmim.simulation.server import Server


class Recording:
    """Writes the records, a checkpoint after each round, and the final model of a run."""

    def __init__(self, path: Path, resume: bool, problem: Problem | None) -> None:
        saved = has_checkpoint(path)
        if resume and not (saved or (path / CONFIG).exists()):
            raise UserError(f"{path}: there is no checkpoint to resume from")
        if saved and not resume:
            raise UserError(f"{path}: there is already a run; use resume=True or a different folder")
        self.path, self.resumes, self._problem = path, saved, problem  # one that died in its first round starts again

    def load(self, server: Server, model: str, clients: int, label: str) -> list[Record]:
        """Restore the server and read the records, if the run is resumed. Nothing is written."""
        problem = self._problem or Problem(data="flower", split="natural", clients=clients, model=model)
        config = Config(problem, server.settings)
        self._run = Run(method_name(server.algorithm), server.algorithm, config, label)
        if not self.resumes:
            self._check_unused()
            return []
        folder = RunFolder.open(self.path)
        server.restore()
        self._check_same(folder)
        done = server.state.round
        records = folder.metrics()
        if len(records) < done:
            raise UserError(
                f"{self.path / METRICS}: has {len(records)} records, the checkpoint has {done} rounds; restore the "
                "file, or start a new run in a different folder"
            )
        return [Record(**record | {"clients": tuple(record["clients"])}) for record in records[:done]]

    @contextmanager
    def writing(self, server: Server) -> Iterator[None]:
        """Hold the folder's lock, and write its configuration."""
        begun = (self.path / CONFIG).exists()  # by this run, or by one that was killed before its first checkpoint
        folder = RunFolder(self.path, self._run) if begun else RunFolder.create(self.path, self._run)
        with folder.locked():
            if not self.resumes:
                self._check_unused()  # again: another process may have used it meanwhile
            remove_parts(self.path)
            folder.save_config()
            cut_records(self.path / METRICS, server.state.round)  # rounds after the checkpoint are repeated
            sync_folder(self.path)
            self._server, self._lines = server, AppendedLines(self.path / METRICS)
            with self._lines:
                yield

    def _check_unused(self) -> None:
        """Reject a folder with a run, except this run if it was killed before its first checkpoint."""
        if not (self.path / CONFIG).exists():
            return
        folder = RunFolder.open(self.path)
        if has_checkpoint(self.path) or (self.path / MODEL).exists() or folder.rounds_done() > 1:
            raise UserError(f"{self.path}: there is already a run; use resume=True or a different folder")
        self._check_same(folder)

    def _check_same(self, folder: RunFolder) -> None:
        if changed := folder.run.changes_to(self._run):
            raise UserError(f"{self.path}: the run there has a different {', '.join(changed)}; use a different folder")

    def add(self, record: Record) -> None:
        """Write the record of a round, then the checkpoint after it."""
        self._lines.add(json.dumps(jsonable(record)))
        self._lines.sync()  # records must be on disk before their checkpoint
        self._server.save()

    def finish(self, model: object, round: int) -> None:
        """Write the final model."""
        save_model(model, self.path / MODEL, round)
        sync_folder(self.path)
