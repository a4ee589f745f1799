"""Evaluation of the global model, on the server or on a client."""

from __future__ import annotations

from collections.abc import Callable

import torch
from flwr.app import ArrayRecord, MetricRecord

from fedmim.models import FlatModel
from fedmim.simulation.evaluation import evaluate
from fedmim.simulation.settings import Settings
from fedmim.simulation.task import Task


def evaluate_fn(
    task: Task, settings: Settings, device: str = "cpu"
) -> Callable[[int, ArrayRecord], MetricRecord | None]:
    """For `strategy.start(evaluate_fn=...)`: test loss and metric every `eval_every` rounds and after the last."""

    def run(round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if round % settings.eval_every and round != settings.rounds:
            return None
        return MetricRecord({**evaluate_arrays(task, arrays, device)})

    return run


def evaluate_arrays(task: Task, arrays: ArrayRecord, device: torch.device | str) -> dict[str, float]:
    """Test loss and metric, if there is one, of a model in a Flower ArrayRecord."""
    model = FlatModel(task.model, task.loss, device)
    model.module.load_state_dict(arrays.to_torch_state_dict())
    loss, metric = evaluate(model, task, model.params, model.buffers)
    return {"test_loss": loss} if metric is None else {"test_loss": loss, "test_accuracy": metric}
