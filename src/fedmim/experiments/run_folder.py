"""Run folders: configuration, metrics, checkpoint and final model of one run. Each file is written atomically.

config.toml                        the full configuration
metrics.jsonl                      one record per round, appended when the round ends
per_client.jsonl                   the metric of each client, one line per evaluation, with `per_client`
clients.json                       the number of samples of each class that each client holds
checkpoint.safetensors             the state of the run; the client state is in clients/
checkpoint.previous.safetensors    the checkpoint before it, in case the last one is damaged
model.safetensors                  the final model, with its state_dict names
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmim.divergence import STALLED_ROUNDS, divergence, stalled_rounds
from fedmim.errors import DivergedError, UserError, warn_user
from fedmim.experiments.client_labels import CLIENT_LABELS, write_client_labels
from fedmim.experiments.fingerprint import fingerprint
from fedmim.experiments.metrics_file import ADDED, cut_records, read_records
from fedmim.experiments.per_client_file import ScoresFile, lines_until, start_client_scores
from fedmim.experiments.run import Run
from fedmim.experiments.toml_values import read_toml
from fedmim.files import (
    LOCK,
    AppendedLines,
    folder_lock,
    holding,
    make_folder,
    read_metadata,
    remove,
    remove_parts,
    sync_folder,
    write_tensors,
    write_text,
)
from fedmim.signals import held

if TYPE_CHECKING:
    from torch import nn

    from fedmim.simulation.loop import Rounds
    from fedmim.simulation.record import Record
    from fedmim.simulation.stopping import Stopping
    from fedmim.simulation.task import Task

CONFIG, METRICS, MODEL = "config.toml", "metrics.jsonl", "model.safetensors"

LEFT_BEHIND = (LOCK, f".{CONFIG}.part")  # by a process that was killed while it created the folder

Watch = Callable[["Record"], None]
Records = Sequence[Mapping[str, Any]]  # one per round


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path, run: Run) -> None:
        self.path = path
        self.run = run
        self._lock = folder_lock(path)
        self._training: Rounds | None = None  # while `train` runs

    @classmethod
    def create(cls, path: Path, run: Run) -> RunFolder:
        """Create a run in a folder that does not exist yet or is empty."""
        if path.exists() and not path.is_dir():
            raise UserError(f"{path}: is a file; give another --out")
        if (path / CONFIG).exists():
            raise UserError(f"{path}: already contains a run; add --resume to continue it, or give another --out")
        if path.exists() and any(each.name not in LEFT_BEHIND for each in path.iterdir()):
            raise UserError(f"{path}: is not empty; give another --out")
        make_folder(path)
        write_text(path / CONFIG, run.to_toml())
        return cls(path, run)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run."""
        if not (path / CONFIG).is_file():
            raise UserError(f"{path}: not a run folder ({CONFIG} is missing)")
        return cls(path, Run.from_toml(read_toml(path / CONFIG), str(path / CONFIG)))

    @classmethod
    def reopen(cls, path: Path, run: Run) -> RunFolder:
        """Open an existing run to resume it as `run`. How long it runs, execution and label may differ.

        Nothing is written before `train`.
        """
        folder = cls.open(path)
        if changed := folder.run.changes_to(run):
            raise UserError(
                f"{path}: {', '.join(changed)} cannot change when a run is resumed; give another --out for a new run"
            )
        done, rounds = folder.rounds_done(), run.config.settings.rounds
        if rounds < done:
            raise UserError(f"rounds: must be at least {done}, the rounds that {path} has done, got {rounds}")
        folder.run = run
        return folder

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or the run stopped early, and the final model is written."""
        done = self.rounds_done()
        ended = done >= self.run.config.settings.rounds or self.run.stop_reason(read_records(self.path / METRICS))
        return bool(ended) and model_round(self.path / MODEL, done) >= done

    def metrics(self) -> list[dict[str, Any]]:
        """The records so far. A truncated last line is skipped."""
        return list(read_records(self.path / METRICS))

    def rounds_done(self) -> int:
        """The number of records. All are checked, and none is kept in memory."""
        return sum(1 for _ in read_records(self.path / METRICS))

    def model(self) -> nn.Module:
        """A copy of the current global model, while the run trains."""
        if self._training is None:
            raise UserError(f"{self.path}: the run is not in training; its final model is in {MODEL}")
        return self._training.model

    def train(self, task: Task, watch: Watch | None = None, every: float = 10.0) -> str | None:
        """Start or resume the run and train to the last round. Returns why it stopped earlier, if it did.

        If the process is killed, only the rounds since the last checkpoint are lost; they are repeated bit for bit.
        Everything is locked, loaded and checked before anything is written. A run that diverged raises DivergedError if
        on_divergence is "stop".
        """
        from fedmim.simulation.checkpoint import has_checkpoint
        from fedmim.simulation.loop import rounds

        with self.locked():
            run, config = self.run, self.run.config
            training = rounds(
                run.algorithm,
                task,
                config.settings,
                config.execution,
                folder=self.path,
                resume=has_checkpoint(self.path),
                facts=asdict(config.problem) | fingerprint(task),
                label=run.label,
            )
            done = training.server.state.round
            recent, evaluations = self._records_before(done, training.stopping), lines_until(self.path, done)
            self._check_divergence(recent)
            remove_parts(self.path)
            self.save_config()
            if not model_round(self.path / MODEL, unstamped=0):  # from an older version, without its round
                remove(self.path / MODEL)
            cut_records(self.path / METRICS, done)  # rounds after the checkpoint are repeated
            if not (self.path / CLIENT_LABELS).exists():
                write_client_labels(task, self.path)
            opened = start_client_scores(self.path, task, training.evaluated_on, evaluations)
            sync_folder(self.path)
            self._training = training
            try:
                with AppendedLines(self.path / METRICS) as metrics, opened as scores:
                    self._train(training, recent, metrics, scores, watch, every)
            finally:
                self._training = None
            save_model(training.model, self.path / MODEL, training.server.state.round)
            sync_folder(self.path)
            return training.stopping.reason if training.state.round < config.settings.rounds else None

    def _train(
        self,
        training: Rounds,
        recent: deque[Mapping[str, Any]],
        metrics: AppendedLines,
        scores: ScoresFile | None,
        watch: Watch | None,
        every: float,
    ) -> None:
        """Train the remaining rounds. Write a checkpoint after every `every` seconds, and at the end."""
        saved = time.monotonic()
        recorded = training.state.round

        def write(record: Record) -> None:
            nonlocal recorded
            recent.append(jsonable(record))
            with held():
                if scores and training.client_scores:
                    scores.add_scores(training.client_scores)
                metrics.add(json.dumps(recent[-1]))
                recorded = record.round

        def save() -> None:
            metrics.sync()  # records must be on disk before their checkpoint
            if scores:
                scores.sync()
            training.save()

        try:
            for record in training:
                write(record)
                if watch:
                    watch(record)
                if time.monotonic() - saved >= every:
                    save()
                    saved = time.monotonic()
                self._check_divergence(recent)
        except DivergedError:
            save()
            raise
        except KeyboardInterrupt:
            try:
                if training.record and training.state.round > recorded:  # interrupted between a round and its record
                    write(training.record)
                save()
            except OSError as error:
                warn_user(f"{error.filename}: {error.strerror}; the rounds since the last checkpoint will be repeated")
            raise
        save()

    def _check_divergence(self, recent: Sequence[Mapping[str, Any]]) -> None:
        """Stop a run that diverged, if on_divergence is "stop" and rounds are left."""
        config = self.run.config
        stops = config.execution.on_divergence == "stop" and stalled_rounds(recent) >= STALLED_ROUNDS
        if stops and recent[-1]["round"] < config.settings.rounds:
            raise DivergedError(
                f"{self.path}: {self.run.label}, seed {config.settings.seed} has {divergence(recent)}; "
                "use --resume --on-divergence continue to train it to the end anyway"
            )

    def _records_before(self, round: int, stopping: Stopping) -> deque[Mapping[str, Any]]:
        """The last records before a checkpoint. All are checked and seen; having fewer than its rounds is an error."""
        recent, found = deque[Mapping[str, Any]](maxlen=STALLED_ROUNDS), 0
        for found, record in enumerate(read_records(self.path / METRICS), start=1):
            if found <= round:
                recent.append(record)
                stopping.see(record["round"], record["test_accuracy"])
        if found < round:
            raise UserError(
                f"{self.path / METRICS}: has {found} records, the checkpoint has {round} rounds; restore the file, or "
                "remove the checkpoints to start again"
            )
        return recent

    def save_config(self) -> None:
        """Write the configuration if it has changed."""
        path, text = self.path / CONFIG, self.run.to_toml()
        with self.locked():
            if path.read_text(encoding="utf-8") != text:
                write_text(path, text)

    def locked(self) -> AbstractContextManager[None]:
        """Lock this run against other processes. The lock is reentrant."""
        return holding(self._lock)


def check_checkpoint_seconds(seconds: float) -> None:
    """Reject an invalid interval between checkpoints."""
    if not seconds >= 0:
        raise UserError(f"checkpoint_seconds: must be at least 0, got {seconds}")


def jsonable(record: Record) -> dict[str, Any]:
    """A record for JSON: numbers that are not finite become null. Fields that the run does not have are omitted."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(record).items()
        if not (name in ADDED and value is None)
    }


def save_model(model: Any, path: Path, round: int) -> None:
    """Write the model with its state_dict names, for load_state_dict, and the number of its round."""
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    write_tensors(path, tensors, {"round": str(round)})


def model_round(path: Path, unstamped: int) -> int:
    """The round of a saved model; 0 if it cannot be read, `unstamped` if the file does not say."""
    try:
        return int(read_metadata(path).get("round", unstamped)) if path.is_file() else 0  # reading a pipe would block
    except (OSError, ValueError, TypeError):
        return 0
