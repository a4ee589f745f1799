"""Evaluation of the global model on the test data."""

from __future__ import annotations

import torch
from torch import Tensor

from fedmim.models import FlatModel
from fedmim.simulation.task import Task

BATCH = 1000


@torch.no_grad()
def evaluate(model: FlatModel, task: Task, params: Tensor, buffers: Tensor) -> tuple[float, float | None]:
    """Loss and metric on the whole test set; the metric is None for regression without a metric."""
    model.buffers = buffers
    module = model.point_at(params).eval()
    x, y = task.test
    outputs = []
    for part in x.split(BATCH):
        part = part.to(params.device)
        outputs.append(module(model.laid_out(part if task.prepare is None else task.prepare(part))))
    predicted, targets = torch.cat(outputs), y.to(params.device)
    return float(task.loss(predicted, targets)), task.score(predicted, targets)
