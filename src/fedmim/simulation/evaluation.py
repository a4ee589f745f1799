"""Evaluation of the global model on the test data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedmim.models import FlatModel
from fedmim.models.calling import call, loss_of
from fedmim.simulation.task import Task
from fedmim.structure import Structure, each, length, split

BATCH = 1000


@torch.no_grad()
def evaluate(model: FlatModel, task: Task, params: Tensor, buffers: Tensor) -> tuple[float, float | None]:
    """Loss and metric on the whole test set; the metric is None for regression without a metric."""
    model.buffers = buffers
    model.point_at(params).eval()
    x, y = task.test
    predicted, targets = predict(model, task, x), each(lambda tensor: tensor.to(params.device), y)
    return float(loss_of(task.loss, predicted, targets)), task.score(predicted, targets)


def predict(model: FlatModel, task: Task, x: Structure) -> Structure:
    """The outputs for all samples, computed in batches. The model must be in evaluation mode."""
    outputs, sizes = [], []
    for part in split(x, BATCH):
        part = each(lambda tensor: tensor.to(model.params.device), part)
        sizes.append(length(part))
        outputs.append(call(model.module, model.laid_out(part if task.prepare is None else task.prepare(part))))
    return join_outputs(outputs, sizes)


def join_outputs(outputs: list[Structure], sizes: list[int]) -> Structure:
    """The outputs of all batches as one: concatenated, and means weighted by the sizes of the batches.

    An output without dimensions, such as a loss that the model computes, is a mean over the batch. What is neither a
    tensor nor a structure becomes None.
    """

    def joined(*parts: Any) -> Structure:
        if isinstance(parts[0], Mapping):  # of a class that torch does not know as a structure
            return {name: join_outputs([part[name] for part in parts], sizes) for name in parts[0]}
        if not isinstance(parts[0], Tensor):
            return None
        if parts[0].dim():
            return torch.cat(parts)
        return torch.stack([part * size for part, size in zip(parts, sizes, strict=True)]).sum() / sum(sizes)

    return joined(*outputs) if isinstance(outputs[0], Tensor) else tree_map(joined, *outputs)
