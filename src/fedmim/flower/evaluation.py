"""Evaluation of the global model, on the server or by the clients."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict

from fedmim.flower.messages import ARRAYS, CONFIG, METRICS, number
from fedmim.flower.metrics import MetricsFn, weighted_means
from fedmim.models import FlatModel
from fedmim.simulation.evaluation import evaluate
from fedmim.simulation.randomness import key
from fedmim.simulation.settings import Settings
from fedmim.simulation.task import Task

ACCURACY = ("test_accuracy", "accuracy", "eval_acc", "eval_accuracy")  # the names that Flower's examples use
LOSS = ("test_loss", "loss", "eval_loss")


@dataclass(frozen=True)
class Evaluation:
    """Evaluation by the clients, as Flower's FedAvg does it. A reply that cannot be used is left out."""

    fraction: float
    least: int
    weighted_by: str
    metrics_fn: MetricsFn | None

    def configure(self, round: int, arrays: ArrayRecord, config: ConfigRecord, nodes: list[int]) -> list[Message]:
        """Messages to some of the nodes."""
        if not self.fraction:
            return []
        count = min(len(nodes), max(int(len(nodes) * self.fraction), self.least))
        chosen = random.Random(key("evaluate", round)).sample(sorted(nodes), count)
        content = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord({**config, "server-round": round})})
        return [Message(content, node, MessageType.EVALUATE) for node in chosen]

    def aggregate(self, replies: Iterable[Message]) -> tuple[MetricRecord | None, list[tuple[int, str]]]:
        """The means of the metrics, and the nodes whose replies cannot be used, with the reason."""
        usable, failures = list[RecordDict](), list[tuple[int, str]]()
        for reply in replies:
            try:
                usable.append(self._usable(reply))
            except ValueError as error:
                failures.append((reply.metadata.src_node_id, str(error)))
        found = (self.metrics_fn or weighted_means)(usable, self.weighted_by) if usable else None
        return found, failures

    def _usable(self, reply: Message) -> RecordDict:
        if reply.has_error():
            raise ValueError(reply.error.reason or f"error {reply.error.code}")
        records = list(reply.content.metric_records.values())
        if len(records) != 1:
            raise ValueError("the reply must have one MetricRecord")
        if number(records[0], self.weighted_by) <= 0:
            raise ValueError(f"{self.weighted_by} must be above 0")
        return RecordDict({METRICS: records[0]})


def evaluate_fn(
    task: Task, settings: Settings, device: str = "cpu"
) -> Callable[[int, ArrayRecord], MetricRecord | None]:
    """For `strategy.start(evaluate_fn=...)`: loss and metric on the test data, every `settings.eval_every` rounds."""

    def run(round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if round % settings.eval_every and round != settings.rounds:
            return None
        return MetricRecord({**evaluate_arrays(task, arrays, device)})

    return run


def evaluate_arrays(task: Task, arrays: ArrayRecord, device: torch.device | str) -> dict[str, float]:
    """The loss, and the metric if the task has one, of a model in Flower's arrays."""
    model = FlatModel(task.model, task.loss, device)
    model.module.load_state_dict(arrays.to_torch_state_dict())
    loss, metric = evaluate(model, task, model.params, model.buffers)
    return {"test_loss": loss} if metric is None else {"test_loss": loss, "test_accuracy": metric}


def scores(found: MetricRecord | None) -> tuple[float | None, float | None]:
    """Accuracy and loss among the metrics of an evaluation; None for what is not there."""

    def first(names: tuple[str, ...]) -> float | None:
        values = [value for name in names if isinstance(value := (found or MetricRecord()).get(name), int | float)]
        return float(values[0]) if values else None

    return first(ACCURACY), first(LOSS)
