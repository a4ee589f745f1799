"""What reference runs do differently: a task with the data of all clients as one, and the evaluation of own models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from statistics import fmean
from typing import Any

from torch import Tensor
from torch.utils.data import ConcatDataset

from fedmim.algorithms import Algorithm
from fedmim.data import LiveData
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.client_state import ClientState
from fedmim.simulation.evaluation import evaluate
from fedmim.simulation.samples import Samples
from fedmim.simulation.settings import PARTICIPATION, Settings
from fedmim.simulation.task import Task
from fedmim.structure import join

# Settings without effect on reference runs: nothing is sent, so nothing is combined, rejected or hidden.
OF_UPLOADS = (
    *("server_lr", "aggregation", "max_distance", "max_distance_ratio", "min_replies"),
    *("dp_noise", "dp_clip", "dp_clip_quantile"),
)
OF_CLIENTS = ("weighting", *PARTICIPATION, "late")  # without effect on the pooled data


def as_trained(algorithm: Algorithm, task: Task, settings: Settings) -> tuple[Task, Settings]:
    """The task and the settings that a method trains with: those given, unless it is a reference."""
    if algorithm.pooled:
        return pooled(task), pooled_settings(task, settings)
    return task, by_default(settings, OF_UPLOADS) if algorithm.own_models else settings


def pooled(task: Task) -> Task:
    """The same task with one client that has the data of all clients, in their order."""
    parts = [task.data(client) for client in range(len(task.clients))]
    live = [each for each in parts if isinstance(each, LiveData)]
    if live and len(live) < len(parts):
        raise UserError("method: cannot pool clients of which only some are live; give all their data in the same way")
    data = pooled_live(live) if live else pooled_samples(parts)
    return replace(task, clients=[data], client_tests=None, names=None)


def pooled_live(parts: Sequence[LiveData]) -> LiveData:
    """Live data of several clients, one after the other."""
    return LiveData("all clients", ConcatDataset([each.dataset for each in parts]), parts[0].reader)


def pooled_samples(parts: Sequence[Any]) -> Samples:
    """The samples of several clients, one after the other."""
    try:
        return join([x for x, _ in parts]), join([y for _, y in parts])
    except (RuntimeError, ValueError) as error:
        raise UserError(
            "method: cannot pool clients whose samples differ in shape or structure; pad them to the same shape"
        ) from error


def pooled_settings(task: Task, settings: Settings) -> Settings:
    """The settings of one client with all data, which takes the gradient steps of a round of the federation.

    K = round(S/N sum_i K_i). Without a batch size, minibatches have the mean size of a client.
    """
    sizes = [task.size(client) for client in range(len(task.clients))]
    count = len(sizes)
    steps = round(settings.active(count) * sum(map(settings.steps, sizes)) / count)
    batch = settings.batch_size or max(1, round(sum(sizes) / count))
    usual = by_default(settings, (*OF_UPLOADS, *OF_CLIENTS))
    return replace(usual, participation=1.0, local_steps=max(1, steps), batch_size=batch)


def by_default(settings: Settings, names: Sequence[str]) -> Settings:
    """The settings with the defaults of these fields."""
    usual: dict[str, Any] = {field.name: field.default for field in fields(settings) if field.name in names}
    return replace(settings, **usual)


def check_own_models(algorithm: Algorithm, model: FlatModel) -> None:
    """Reject a model with buffers for a method whose clients have their own models."""
    if algorithm.own_models and len(model.buffers):
        raise UserError(
            f"method: {algorithm.title} cannot train a model with buffers, as batch norm has, because all clients "
            "would share them; use another normalisation, for example nn.GroupNorm"
        )


def own_model(clients: ClientState, client: int, initial: Tensor) -> Tensor:
    """A client's own model after a round that is not committed yet, (d,)."""
    return initial if clients.stays_new(client) else clients.next(client)["model"]


def evaluate_own_models(
    model: FlatModel, task: Task, initial: Tensor, clients: ClientState, chosen: Sequence[int]
) -> tuple[float | None, float | None]:
    """Loss and metric on the test data, each the mean over the own models of these clients; None without clients."""
    buffers = model.buffers
    found = [evaluate(model, task, own_model(clients, client, initial), buffers) for client in chosen]
    losses, scores = [loss for loss, _ in found], [score for _, score in found if score is not None]
    whole = bool(scores) and len(scores) == len(found)
    return fmean(losses) if losses else None, fmean(scores) if whole else None
