"""The message format: named flat vectors in one ArrayRecord each way, and the round's facts in a ConfigRecord.

| entry of "arrays" | down | up |
|---|---|---|
| params and the method's other vectors, (d,) | those of `broadcast` or `send` | those of `finish` |
| model.T | x_T, if clients keep past models: x_t and those that a client is missing | |
| slot.NAME | a client's own vectors, if the server keeps them | their new values |
| buffer.I | the model's I-th buffer, in its own dtype | its new value |
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedmim.algorithms import Algorithm, Vectors
from fedmim.errors import UserError
from fedmim.simulation.checkpoint import named_after
from fedmim.simulation.settings import Settings

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"  # the names that Flower's own strategies use
LISTEN, FORGET = "query.listen", "query.forget"

SERVER_ONLY = ("participation", "server_lr", "weighting")  # these do not affect a client's training


class LackingError(Exception):
    """The client does not have the past models or the number of local steps that the server expects."""


@dataclass(frozen=True)
class Order:
    """The facts of one client's round, as they are in the message."""

    run: str  # unique id of the run, also on the clients' disks
    round: int  # t = 0, 1, ...
    client: int  # its partition
    lr: float
    state_round: int  # round of the client's current vectors, the last with an accepted reply; -1 for none
    steps: int  # the K for which the vectors are computed (`Algorithm.send`); 0 if they are valid for any K
    method: str  # repr of the algorithm
    settings: str  # settings that must be equal on server and clients, as JSON

    @classmethod
    def of(cls, message: Message) -> Order:
        """Read from a message."""
        config = message.content.config_records.get(CONFIG, ConfigRecord())
        try:
            values: dict[str, Any] = {field.name: config[f"fedmim-{field.name}"] for field in fields(cls)}
        except KeyError as error:
            raise UserError(f"message: {error} is missing; the server must run fedmim.flower.FlowerStrategy") from None
        run, client = values["run"], values["client"]  # used as folder names
        if not (isinstance(client, int) and re.fullmatch("[0-9a-f]{1,64}", str(run))):
            raise UserError(f"message: client {client!r} of run {run!r} is not valid")
        return cls(**values)

    def config(self) -> dict[str, Any]:
        """The facts as entries of a ConfigRecord."""
        facts = {f"fedmim-{field.name}": getattr(self, field.name) for field in fields(self)}
        return {"server-round": self.round + 1, **facts}

    def check(self, algorithm: Algorithm, settings: Settings | None = None) -> None:
        """Raise UserError if the client's method or settings differ from the server's."""
        if repr(algorithm) != self.method:
            raise UserError(f"algorithm: the server runs {self.method}, this client runs {algorithm!r}")
        if settings is not None:
            theirs, ours = self.agreed, json.loads(to_be_agreed(settings))
            if other := [name for name in ours if theirs.get(name) != ours[name]]:
                words = ", ".join(f"{name} {theirs.get(name)} (this client: {ours[name]})" for name in other)
                raise UserError(f"settings: the server has {words}")

    def check_steps(self, steps: int) -> None:
        """Raise LackingError if the client takes a different number of steps than the server expects.

        The server then sends vectors that are valid for any number of steps.
        """
        if self.steps not in (0, steps):
            raise LackingError

    @property
    def first(self) -> bool:
        """Whether the client has no vectors from an earlier round."""
        return self.state_round < 0

    @property
    def agreed(self) -> dict[str, Any]:
        """The settings by name."""
        values: dict[str, Any] = json.loads(self.settings)
        return values


def to_be_agreed(settings: Settings) -> str:
    """The settings that must be equal on server and clients, as JSON."""
    return json.dumps({name: value for name, value in settings.fixed().items() if name not in SERVER_ONLY})


def to_record(vectors: Vectors, slots: Vectors, buffers: Sequence[Tensor]) -> ArrayRecord:
    """Vectors, a client's own vectors and buffers as one ArrayRecord."""
    named = vectors | {f"slot.{name}": vector for name, vector in slots.items()}
    named |= {f"buffer.{place}": buffer for place, buffer in enumerate(buffers)}
    return ArrayRecord({name: Array(tensor.detach().cpu().numpy()) for name, tensor in named.items()})


def from_record(record: ArrayRecord) -> tuple[Vectors, Vectors, list[Tensor]]:
    """The vectors, a client's own vectors and the buffers of an ArrayRecord."""
    tensors = {name: torch.from_numpy(array.numpy()) for name, array in record.items()}
    count = sum(name.startswith("buffer.") for name in tensors)
    buffers = [tensors.pop(f"buffer.{place}") for place in range(count)]
    slots = named_after("slot.", tensors)
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("slot.")}, slots, buffers


def payload(record: ArrayRecord) -> int:
    """The bytes of the elements in a record, without Flower's header of about 128 bytes per array."""
    return sum(int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize for array in record.values())


def number(record: MetricRecord, name: str) -> float:
    """A number in a record; 0 if it is missing."""
    value = record.get(name, 0)
    if isinstance(value, list):
        raise UserError(f"message: {name} must be one number, got {value}")
    return value


def reply_to(message: Message, arrays: ArrayRecord, metrics: dict[str, int | float]) -> Message:
    """A reply with one ArrayRecord and one MetricRecord."""
    content = RecordDict({ARRAYS: arrays, METRICS: MetricRecord(dict(metrics))})
    return Message(content=content, reply_to=message)
