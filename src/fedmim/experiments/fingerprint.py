"""Checksums of tasks, by which a resumed run notices that its data has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedmim.experiments.sources import IN_MEMORY
from fedmim.files import checksum

if TYPE_CHECKING:
    from fedmim.simulation.task import Task


def fingerprint(task: Task) -> dict[str, str]:
    """A checksum of the data and split of a task with its data in memory. The key appears in error messages."""
    from torch import cat

    from fedmim.data import Clients, LiveData

    clients, test = task.clients, {"test_x": task.test[0], "test_y": task.test[1]}
    if isinstance(clients, Clients):
        content = _tensors({"x": clients.x, "y": clients.y, **test}) | {"parts": cat(list(clients.parts))}
    elif isinstance(clients, list | tuple) and not any(isinstance(each, LiveData) for each in clients):
        own = {f"client {number}": pair for number, pair in enumerate(clients)}
        content = _tensors(own | test)
    else:  # reading it may take long
        return {}
    return {"content of the data": checksum(content)}


def name_in_memory(task: Task) -> str:
    """The name of a task that was given in Python: a checksum of its data and of the model's initial weights."""
    weights = [*task.model.named_parameters(), *task.model.named_buffers()]
    state = {f"model {name}": value.detach() for name, value in weights}
    tests = _tensors({"test_x": task.test[0], "test_y": task.test[1]})
    known = fingerprint(task).get("content of the data", f"{len(task.clients)}-")
    return f"{IN_MEMORY}{known[:8]}{checksum(state | tests)[:8]}"


def _tensors(values: dict[str, Any]) -> dict[str, Any]:
    from fedmim.structure import named_tensors

    return {place: tensor for name, value in values.items() for place, tensor in named_tensors(name, value).items()}
