"""Validation data from the training data of any task, to select settings without its test data."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedmim.data import LiveData
from fedmim.errors import UserError
from fedmim.simulation.randomness import key
from fedmim.simulation.samples import Samples
from fedmim.simulation.task import Task
from fedmim.structure import each, join, length


def hold_out(task: Task, share: float) -> Task:
    """The task with this fraction of the clients' training samples as test data.

    Each client holds out random samples, always the same, and keeps at least one. Their numbers are rounded such that
    they add up to the fraction of all samples.
    """
    kept, held = list[Samples](), list[Samples]()
    before = 0  # samples of the clients before
    for client in range(len(task.clients)):
        data = task.data(client)
        if isinstance(data, LiveData):
            raise UserError("validation: data that is read live cannot be held out; read it into memory")
        size = length(data[1])
        count = min(int(share * (before + size)) - int(share * before), size - 1)
        order = torch.randperm(size, generator=torch.Generator().manual_seed(key("validation", client)))
        kept.append(_samples(data, order[count:].sort().values))
        if count:
            held.append(_samples(data, order[:count].sort().values))
        before += size
    if not held:
        raise UserError(f"validation: {share} of {before} training samples leaves no validation samples")
    try:
        test = join([x for x, _ in held]), join([y for _, y in held])
    except (RuntimeError, ValueError) as error:
        raise UserError(
            "validation: cannot hold out samples of clients that differ in shape or structure; pad them to the same "
            "shape"
        ) from error
    return replace(task, clients=kept, test=test, client_tests=None)


def _samples(data: Samples, part: torch.Tensor) -> Samples:
    x, y = (each(lambda tensor: tensor[part.to(tensor.device)], either) for either in data)
    return x, y
