"""Evaluation on the data of each client: of the global model, and of the model after the client's own local steps.

The local steps are those that the client would take in the next round, from the same vectors and with the same
minibatches. Nothing of the run changes: its model has the same bits with and without this evaluation.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, Local, Vectors
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.client_state import ClientState
from fedmim.simulation.engines import Execute, choose, naming
from fedmim.simulation.evaluation import BATCH, predict
from fedmim.simulation.record import Record
from fedmim.simulation.references import own_model
from fedmim.simulation.samples import Samples
from fedmim.simulation.server import ClosedRound
from fedmim.simulation.settings import Execution, Settings
from fedmim.simulation.task import Task
from fedmim.simulation.training import Work, one_thread
from fedmim.structure import each, length

WORST = 0.1  # the fraction of the clients in the mean of the worst

DataKind = Literal["test", "train"]
Scores = tuple[float | None, ...]  # of each client; None: it has no test data, or the metric is not finite


@dataclass(frozen=True)
class ClientScores:
    """The metric of each client after one round."""

    round: int
    evaluated_on: DataKind  # the clients' own test data, or their training data if no client has test data
    model: Scores  # of the global model, or of the client's own model if there is no global one
    personal: Scores | None = None  # of the model after the client's own local steps; None: not evaluated

    def summarised(self, record: Record) -> Record:
        """The record of the round, with the fields about its clients."""
        known = _known(self.model)
        return replace(
            record,
            clients_mean=_mean(known),
            clients_worst=_mean(sorted(known)[: math.ceil(WORST * len(known))]),
            clients_std=statistics.pstdev(known) if known else None,
            personal_mean=_mean(_known(self.personal or ())),
            clients_q10=_quantile(known, 0.1),
            clients_q25=_quantile(known, 0.25),
            clients_q50=_quantile(known, 0.5),
            clients_q75=_quantile(known, 0.75),
            clients_q90=_quantile(known, 0.9),
        )


class ClientEvaluation:
    """Evaluates the clients of one run, as `Execution.per_client` says."""

    def __init__(
        self, algorithm: Algorithm, task: Task, settings: Settings, execution: Execution, model: FlatModel
    ) -> None:
        self._task, self._settings = task, settings
        self._model = FlatModel(task.model, task.loss, execution.device)  # `model` is busy while clients train
        self._own, self.evaluated_on = evaluation_data(task)
        self._algorithm = sending_models(algorithm)
        self._training: tuple[FlatModel, Execute] | None = None
        if execution.per_client == "personal":
            self._training = model, choose(self._algorithm, task, settings, execution, model)[1]
        if task.metric is None:
            self._check_metric(model)

    def __call__(self, closed: ClosedRound, clients: ClientState) -> ClientScores:
        """Evaluate after a round that is not committed yet; `clients` has its new vectors staged."""
        params = self._algorithm.output(closed.state)
        if self._algorithm.own_models:
            scores = self._of_own_models(params, closed.buffers, clients)
        else:
            scores = self._of_global_model(params, closed.buffers)
        personal = self._of_personal_models(*self._training, closed, clients) if self._training else None
        return ClientScores(closed.state.round, self.evaluated_on, scores, personal)

    @torch.no_grad()
    def _of_global_model(self, params: Tensor, buffers: Tensor) -> Scores:
        self._point_at(params, buffers)
        found: dict[int, float | None] = {}
        for group in self._groups():
            found |= self._group_scores(group)
        return tuple(found.get(client) for client in range(len(self._task.clients)))

    def _of_own_models(self, initial: Tensor, buffers: Tensor, clients: ClientState) -> Scores:
        found: list[float | None] = []
        for client in range(len(self._task.clients)):
            self._point_at(own_model(clients, client, initial), buffers)
            samples = self._own(client, self._model.params.device)
            found.append(None if samples is None else self._score(client, samples))
        return tuple(found)

    def _of_personal_models(
        self, model: FlatModel, execute: Execute, closed: ClosedRound, clients: ClientState
    ) -> Scores:
        task, t = self._task, closed.state.round
        sizes = [task.size(client) for client in range(len(task.clients))]
        order = sorted(range(len(sizes)), key=lambda client: (-sizes[client], client))
        down = self._algorithm.broadcast(closed.state)
        state = closed.buffers, clients.next, clients.stays_new
        work = Work(task, self._settings, t, self._settings.lr_at(t), order, down, *state)
        found: dict[int, float | None] = {}
        with one_thread(), torch.random.fork_rng():
            for reply in execute(self._algorithm, model, work):
                if (samples := self._own(reply.client, self._model.params.device)) is not None:
                    self._point_at(reply.upload["params"], reply.buffers)
                    found[reply.client] = self._score(reply.client, samples)
        return tuple(found.get(client) for client in range(len(sizes)))

    def _point_at(self, params: Tensor, buffers: Tensor) -> None:
        self._model.buffers = buffers
        self._model.point_at(params).eval()

    def _groups(self) -> Iterator[dict[int, Samples]]:
        """All clients with data, in groups of about one batch."""
        group: dict[int, Samples] = {}
        size = 0
        for client in range(len(self._task.clients)):
            if (samples := self._own(client, self._model.params.device)) is None:
                continue
            if group and size + length(samples[1]) > BATCH:
                yield group
                group, size = {}, 0
            group[client] = samples
            size += length(samples[1])
        if group:
            yield group

    def _group_scores(self, group: dict[int, Samples]) -> dict[int, float | None]:
        """The scores of some clients, with one call of the model if their samples and its outputs are tensors."""
        if len(group) > 1 and same_shapes(list(group.values())):
            sizes = [length(y) for _, y in group.values()]
            outputs = predict(self._model, self._task, torch.cat([x for x, _ in group.values()]))
            if isinstance(outputs, Tensor) and outputs.dim() and len(outputs) == sum(sizes):
                parts = zip(group.items(), outputs.split(sizes), strict=True)
                return {client: self._metric(client, own, y) for (client, (_, y)), own in parts}
        return {client: self._score(client, samples) for client, samples in group.items()}

    @torch.no_grad()
    def _score(self, client: int, samples: Samples) -> float | None:
        x, y = samples
        return self._metric(client, predict(self._model, self._task, x), y)

    def _metric(self, client: int, outputs: object, targets: object) -> float | None:
        with naming(f"the metric failed for client {self._task.name(client)}"):
            value = self._task.score(outputs, targets)
        return value if value is not None and math.isfinite(value) else None

    @torch.no_grad()
    def _check_metric(self, model: FlatModel) -> None:
        """Reject a task without a metric: the loss of a client says little about its model."""
        self._point_at(model.params, model.buffers)
        device = self._model.params.device
        samples = (self._own(client, device) for client in range(len(self._task.clients)))
        x, y = (each(lambda part: part[:1], side) for side in next(own for own in samples if own is not None))
        if self._task.score(predict(self._model, self._task, x), y) is None:
            raise UserError("per_client: the task has no metric; give it one: Task(metric=...)")


def evaluation_data(task: Task) -> tuple[Callable[[int, torch.device], Samples | None], DataKind]:
    """A function that gives the data to evaluate a client on, and which data it is.

    It is the client's test data. If no client has any, it is its training data; the two are never mixed.
    """
    if any(task.client_test(client) is not None for client in range(len(task.clients))):
        return task.client_test, "test"
    return task.samples, "train"


def sending_models(algorithm: Algorithm) -> Algorithm:
    """The method with clients that send the model after their local steps, whatever else they would send."""

    class SendingModels(type(algorithm)):  # type: ignore[misc]
        def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
            return {"params": w}, local.slots

    sending: Algorithm = object.__new__(SendingModels)
    sending.__dict__.update(algorithm.__dict__)
    return sending


def same_shapes(parts: Sequence[Samples]) -> bool:
    """Whether the samples are tensors that can be concatenated."""
    if not all(isinstance(x, Tensor) and isinstance(y, Tensor) for x, y in parts):
        return False
    return len({(x.shape[1:], x.dtype) for x, _ in parts}) == 1


def _known(scores: Scores) -> list[float]:
    return [score for score in scores if score is not None]


def _quantile(values: Sequence[float], part: float) -> float | None:
    """Between two clients by linear interpolation."""
    return float(np.quantile(values, part)) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
