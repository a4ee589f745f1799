"""What crosses the wire: named flat vectors in one ArrayRecord each way, and the round's facts in a ConfigRecord.

| entry of "arrays" | down | up |
|---|---|---|
| params and the method's own, (d,) | what `broadcast` gives | what `finish` gives |
| model.T | x_T, where clients keep past models: x_t and those that they lack | |
| slot.NAME | a client's own vectors, where the server keeps them | their new values |
| buffer.I | the model's I-th buffer, in its own type | its new value |
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

SERVER_ONLY = ("participation", "server_lr", "weighting")  # a client trains the same, whatever these are


class LackingError(Exception):
    """The client has not what the server takes it to have: past models, or the number of local steps."""


@dataclass(frozen=True)
class Order:
    """The facts of one client's round, as the message has them."""

    run: str  # the run's unique id, also on the disks of the clients
    round: int  # t = 0, 1, ...
    client: int  # its partition
    lr: float
    state_round: int  # the client's vectors are those of this round, the last whose reply counted; -1 for none
    steps: int  # K, for which the vectors sent are made (`Algorithm.send`); 0 where they serve any K
    method: str  # repr of the algorithm
    settings: str  # those on which server and clients must agree, as JSON

    @classmethod
    def of(cls, message: Message) -> Order:
        """Read from a message."""
        config = message.content.config_records.get(CONFIG, ConfigRecord())
        try:
            values: dict[str, Any] = {field.name: config[f"fedmim-{field.name}"] for field in fields(cls)}
        except KeyError as error:
            raise UserError(f"message: {error} is missing; the server must run fedmim.flower.FlowerStrategy") from None
        run, client = values["run"], values["client"]  # they become names of folders
        if not (isinstance(client, int) and re.fullmatch("[0-9a-f]{1,64}", str(run))):
            raise UserError(f"message: client {client!r} of run {run!r} cannot be")
        return cls(**values)

    def config(self) -> dict[str, Any]:
        """The facts as entries of a ConfigRecord."""
        facts = {f"fedmim-{field.name}": getattr(self, field.name) for field in fields(self)}
        return {"server-round": self.round + 1, **facts}

    def check(self, algorithm: Algorithm, settings: Settings | None = None) -> None:
        """Reject a client whose method or settings are not those of the server."""
        if repr(algorithm) != self.method:
            raise UserError(f"algorithm: the server runs {self.method}, this client {algorithm!r}")
        if settings is not None:
            theirs, ours = self.agreed, json.loads(to_be_agreed(settings))
            if other := [name for name in ours if theirs.get(name) != ours[name]]:
                words = ", ".join(f"{name} {theirs.get(name)} (here {ours[name]})" for name in other)
                raise UserError(f"settings: the server has {words}")

    def check_steps(self, steps: int) -> None:
        """Ask for vectors that serve any number of steps where the client takes another than the server expects."""
        if self.steps not in (0, steps):
            raise LackingError

    @property
    def first(self) -> bool:
        """Whether the client has no vectors from an earlier round."""
        return self.state_round < 0

    @property
    def agreed(self) -> dict[str, Any]:
        """The settings by their names."""
        values: dict[str, Any] = json.loads(self.settings)
        return values


def to_be_agreed(settings: Settings) -> str:
    """The settings on which server and clients must agree, as JSON."""
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
    """The bytes of the numbers in a record, without Flower's header of about 128 bytes for each array."""
    return sum(int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize for array in record.values())


def number(record: MetricRecord, name: str) -> float:
    """A number in a record, 0 where it is not there."""
    value = record.get(name, 0)
    if isinstance(value, list):
        raise UserError(f"message: {name} must be one number, got {value}")
    return value


def reply_to(message: Message, arrays: ArrayRecord, metrics: dict[str, int | float]) -> Message:
    """A reply with one ArrayRecord and one MetricRecord."""
    content = RecordDict({ARRAYS: arrays, METRICS: MetricRecord(dict(metrics))})
    return Message(content=content, reply_to=message)
