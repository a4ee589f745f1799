"""The message format: the model's state dict in one record, and what a method adds to it in a second one.

| record | down | up |
|---|---|---|
| "arrays" | the model's state dict under its own names, with the vector "params" of `broadcast` or `send` | with that of `finish` |
| "fedmim", only if a method has more to send | its other vectors; model.T: x_T, if clients keep past models and miss it; slot.NAME: the client's own vectors, if the server keeps them; buffer.I: a buffer that is not in the state dict | its other vectors, slot.NAME, buffer.I |
| "config" | the user's own entries, and the facts of the round (`Order`) | |
| "metrics" | | num-examples, steps, train_loss, finite, and the user's own |
"""  # noqa: E501

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedmim.algorithms import Algorithm, Vectors
from fedmim.errors import UserError
from fedmim.experiments.methods import hyper_parameters, is_built_in, make_method, method_name
from fedmim.flower.state_dict import StateDict, check_names, decode, encode
from fedmim.simulation.settings import Settings
from fedmim.simulation.wire import Sizes

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"  # the names that Flower's own strategies use
MORE = "fedmim"
HEADER = 128  # bytes of the header that np.save writes
MOST = 2**53  # the largest count that a float holds exactly
LISTEN, FORGET = "query.listen", "query.forget"

MetricValue: TypeAlias = int | float | list[int] | list[float]

SERVER_ONLY = (  # these do not affect a client's training
    *("participation", "server_lr", "weighting", "aggregation", "trim", "max_distance", "max_distance_ratio"),
    *("min_replies", "dp_noise", "dp_clip", "dp_clip_quantile", "dp_delta"),
    "rounds",  # a message has the learning rate
)


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
    recipe: str  # name and hyper-parameters of a built-in method, as JSON; empty for others
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

    def algorithm(self) -> Algorithm:
        """The server's method, if it is built in. No code is imported."""
        name, values = json.loads(self.recipe) if self.recipe else ("", {})
        if not is_built_in(name):
            raise UserError(f"algorithm: the server runs {self.method}; create the optimizer with it")
        return make_method(name, values, "message")[0]

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


def recipe(algorithm: Algorithm) -> str:
    """The name and hyper-parameters of a built-in method, as JSON; empty for others."""
    name = method_name(algorithm)
    return json.dumps([name, hyper_parameters(algorithm)]) if is_built_in(name) else ""


def to_records(
    layout: StateDict, vectors: Vectors, slots: Vectors, buffers: Sequence[Tensor]
) -> dict[str, ArrayRecord]:
    """Vectors, a client's own vectors and the averaged buffers as records."""
    more = {name: vector for name, vector in vectors.items() if name != "params"}
    more |= {f"slot.{name}": vector for name, vector in slots.items()}
    more |= {f"buffer.{place}": buffers[place] for place in layout.other_buffers}
    records = {ARRAYS: layout.record(vectors["params"], buffers)}
    return records | ({MORE: ArrayRecord({name: encode(each) for name, each in more.items()})} if more else {})


def from_records(
    layout: StateDict, content: RecordDict, expected: Sizes | None = None, params: Tensor | None = None
) -> tuple[Vectors, Vectors, list[Tensor]]:
    """The vectors, a client's own vectors (named slot.NAME in `expected`) and the averaged buffers of a message.

    `expected` has the sizes of the vectors in the second record; without it they may have any name and size. Raises
    ValueError if the message does not fit. The vector "params" is written to `params`, if it is given: memory that is
    used again is ten times as fast as new memory.
    """
    params = layout.empty() if params is None else params
    buffers = layout.read(content.array_records[ARRAYS], params)
    more = content.array_records.get(MORE, ArrayRecord())
    others = {f"buffer.{place}": place for place in layout.other_buffers}
    if expected is not None:
        check_names(more, [*expected, *others], "what the method sends")
    vectors, slots = {"params": params}, {}
    for name, array in more.items():
        if name in others:
            like = layout.buffers[others[name]]
            buffers[others[name]] = torch.from_numpy(decode(array, tuple(like.shape), like.dtype, name).copy())
            continue
        shape = None if expected is None else (expected[name],)
        vector = torch.from_numpy(decode(array, shape, layout.dtype, name).copy())
        if name.startswith("slot."):
            slots[name.removeprefix("slot.")] = vector
        else:
            vectors[name] = vector
    return vectors, slots, [buffers[place] for place in sorted(buffers)]


def payload(content: RecordDict) -> int:
    """The bytes of all arrays in a message, without the header of 128 bytes that each has."""
    arrays = [array for record in content.array_records.values() for array in record.values()]
    return sum(max(0, len(array.data) - HEADER) for array in arrays)


def number(record: MetricRecord, name: str) -> float:
    """A finite number in a record; ValueError if it is missing or something else."""
    value = record.get(name)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {str(value)[:40]}")
    return value


def count(record: MetricRecord, name: str, least: int = 1) -> int:
    """A whole number in a record, of at least `least`; ValueError if it is missing or something else."""
    value = number(record, name)
    if not least <= value <= MOST or value != int(value):
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value:g}")
    return int(value)


def reply_to(message: Message, arrays: dict[str, ArrayRecord], metrics: Mapping[str, MetricValue]) -> Message:
    """A reply with these records and one MetricRecord."""
    content = RecordDict({**arrays, METRICS: MetricRecord(dict(metrics))})
    return Message(content=content, reply_to=message)
