"""The round loop: sample clients, send down, train, average, update. There is one, for every method and engine."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from fedmim.algorithms import Algorithm, Round, ServerState, Vectors
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.callbacks import Callback, RunInfo, telling
from fedmim.simulation.checkpoint import CLIENTS, Checkpoint
from fedmim.simulation.client_state import ClientState
from fedmim.simulation.engines import choose
from fedmim.simulation.evaluation import evaluate
from fedmim.simulation.ledger import bytes_down, vector_bytes
from fedmim.simulation.mean import StreamingMean
from fedmim.simulation.past_models import PastModels
from fedmim.simulation.randomness import sample_clients
from fedmim.simulation.settings import Execution, Settings
from fedmim.simulation.task import Task
from fedmim.simulation.training import Reply, Work, one_thread


@dataclass(frozen=True)
class Record:
    """What is known of one round when it has ended."""

    round: int  # 1, 2, ..., T
    test_accuracy: float | None  # the task's metric; None in rounds without evaluation, or without a metric
    test_loss: float | None
    train_loss: float | None  # mean over the accepted clients of the mean over their minibatches
    consistency: float | None  # (1/S) sum_i ||x_i - mean||^2; None where every upload was refused
    lr: float
    clients: tuple[int, ...]  # the ids that took part
    bytes_up: int
    bytes_down: int
    refused: int  # uploads that were not finite
    seconds: float


@dataclass(frozen=True)
class Result:
    """A finished run."""

    params: Tensor  # the global model as a flat vector
    model: nn.Module  # the same as a module
    history: list[Record]


def simulate(
    algorithm: Algorithm,
    task: Task,
    settings: Settings | None = None,
    execution: Execution | None = None,
    *,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run all rounds of a method on a task; callbacks are told of each as it ends."""
    run = rounds(algorithm, task, settings, execution)
    history = []
    with telling(callbacks, RunInfo.of(algorithm.title, algorithm, run.settings)) as tell:
        for record in run:
            history.append(record)
            tell(record)
    return Result(run.params, run.model, history)


def rounds(
    algorithm: Algorithm,
    task: Task,
    settings: Settings | None = None,
    execution: Execution | None = None,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
) -> Rounds:
    """The rounds of a run as an iterator: a record a round as it ends, the model so far in `.params` and `.model`.

    With a folder, `.save()` writes a checkpoint there between two rounds; `resume=True` goes on from it.
    """
    place = Path(folder) if folder else None
    return Rounds(algorithm, task, settings or Settings(), execution or Execution(), place, resume)


class Rounds(Iterator[Record]):
    """A run in progress."""

    def __init__(
        self,
        algorithm: Algorithm,
        task: Task,
        settings: Settings,
        execution: Execution,
        folder: Path | None,
        resume: bool,
    ) -> None:
        self.algorithm, self.task, self.settings, self.folder = algorithm, task, settings, folder
        self.server_lr = check_server_lr(algorithm, settings)
        self._flat = FlatModel(task.model, task.loss, check_device(execution.device))
        if resume:
            self._restore()
        else:
            self.state, self.buffers = algorithm.init(self._flat.params.clone()), self._flat.buffers
            self.clients, self.past = self._client_state({}), PastModels(algorithm, settings.history)
        self.engine, self._execute = choose(algorithm, task, settings, execution, self._flat)
        self._total_weight = sum(map(self._weight, range(len(task.clients)))) if self._by_samples else len(task.clients)

    def __next__(self) -> Record:
        if self.state.round >= self.settings.rounds:
            raise StopIteration
        begin = time.perf_counter()
        try:
            with one_thread(), torch.random.fork_rng():
                state, buffers, record = self._round()
            if record.round % self.settings.eval_every == 0 or record.round == self.settings.rounds:
                loss, accuracy = evaluate(self._flat, self.task, state.params, buffers)
                record = replace(record, test_loss=loss, test_accuracy=accuracy)
        except BaseException:
            self.clients.rollback()  # an interrupted round has changed nothing
            raise
        self.clients.commit()
        self.past.hear(record.clients, self.state.round)
        self.state, self.buffers = state, buffers
        return replace(record, seconds=time.perf_counter() - begin)

    def _round(self) -> tuple[ServerState, Tensor, Record]:
        """One round from the present state: the next state and buffers, which are not yet those of the run."""
        t, state, buffers, settings = self.state.round, self.state, self.buffers, self.settings
        population = len(self.task.clients)
        sampled = sample_clients(settings.seed, t, population, settings.active(population))
        order = sorted(sampled, key=lambda client: (-self.task.size(client), client))  # longest first
        down = self.algorithm.broadcast(state)
        work = Work(self.task, settings, t, settings.lr_at(t), order, down, buffers, self.clients.get)
        mean = StreamingMean({"params": state.params, "buffers": buffers})
        losses, refused, bytes_up = 0.0, 0, 0
        for reply in self._execute(self.algorithm, self._flat, work):
            bytes_up += vector_bytes(reply.upload) + self._flat.buffer_bytes
            if not is_finite(reply):
                refused += 1
                continue
            weight = self._weight(reply.client)
            mean.add(weight, {**reply.upload, "buffers": reply.buffers})
            losses += weight * reply.loss
            self.clients.put(reply.client, t, reply.slots)

        if mean.clients:
            means = mean.mean()
            buffers = means.pop("buffers")
            share = mean.weight / self._total_weight
            state = self.algorithm.update(state, means, Round(t, work.lr, self.server_lr, share))
        else:
            warnings.warn(f"round {t + 1}: every upload was refused, the model stays as it was", stacklevel=3)
        record = Record(
            round=t + 1,
            test_accuracy=None,
            test_loss=None,
            train_loss=losses / mean.weight if mean.clients else None,
            consistency=mean.consistency() if mean.clients else None,
            lr=work.lr,
            clients=tuple(sampled),
            bytes_up=bytes_up,
            bytes_down=bytes_down(self.past, t, order, population, down, self._flat.buffer_bytes),
            refused=refused,
            seconds=0.0,
        )
        return replace(state, round=t + 1), buffers, record

    @property
    def params(self) -> Tensor:
        """The global model so far, (d,)."""
        return self.state.params

    @property
    def model(self) -> nn.Module:
        """The global model so far as a module of its own, in evaluation mode."""
        return self._flat.module_at(self.state.params, self.buffers)

    def save(self) -> None:
        """Write a checkpoint to the run's folder, whole or not at all."""
        if self.folder is None:
            raise UserError("folder: give rounds() a folder to save checkpoints in")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clients.flush()
        state, heard = self.state, self.past.heard
        places = self.clients.places
        Checkpoint(repr(self.algorithm), self.settings.fixed(), state, self.buffers, places, heard).save(self.folder)
        self.clients.sweep()

    def _restore(self) -> None:
        if self.folder is None:
            raise UserError("folder: give rounds() the folder to resume from")
        saved = Checkpoint.load(self.folder, str(self._flat.params.device))
        params, ours = saved.server.params, self._flat.params
        if saved.method != repr(self.algorithm) or (params.shape, params.dtype) != (ours.shape, ours.dtype):
            raise UserError(f"{self.folder}: the checkpoint there is of another run, {saved.method}")
        if changed := [name for name, value in self.settings.fixed().items() if saved.settings.get(name) != value]:
            raise UserError(f"{self.folder}: the run there has another {', '.join(changed)}")
        self.state, self.buffers = saved.server, saved.buffers
        self.clients = self._client_state(saved.client_rounds)
        self.clients.remove_strays()
        self.past = PastModels(self.algorithm, self.settings.history, saved.heard)

    def _client_state(self, places: dict[int, int]) -> ClientState:
        zeros: Vectors = {name: torch.zeros_like(self._flat.params) for name in self.algorithm.client_slots}
        return ClientState(zeros, self.folder / CLIENTS if self.folder else None, places)

    @property
    def _by_samples(self) -> bool:
        return self.settings.weighting == "samples"

    def _weight(self, client: int) -> float:
        return float(self.task.size(client)) if self._by_samples else 1.0


def is_finite(reply: Reply) -> bool:
    """Whether all numbers of a reply are finite."""
    vectors = [*reply.upload.values(), *reply.slots.values(), reply.buffers]
    # A finite sum shows it in one cheap pass; a sum that overflows does not yet show the contrary.
    return all(math.isfinite(v.sum().item()) or bool(v.isfinite().all()) for v in vectors)


def check_server_lr(algorithm: Algorithm, settings: Settings) -> float:
    """The server's rate: the one set, or the method's own."""
    own = algorithm.default_server_lr
    if settings.server_lr is None or settings.server_lr == own:
        return own
    if not algorithm.any_server_lr:
        raise UserError(f"server_lr: {algorithm.title} takes no other than {own:g}, got {settings.server_lr}")
    return settings.server_lr


def check_device(name: str) -> torch.device:
    """The device, if it is there."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"device: {name!r} is not to be had here; use cpu") from error
    return device
