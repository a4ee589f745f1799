"""The client's side of a round: the received message and the reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Message, MetricRecord
from torch import Tensor, nn

from fedmim.algorithms import Algorithm, Vectors
from fedmim.errors import UserError
from fedmim.flower.history import received
from fedmim.flower.messages import ARRAYS, Order, from_records, reply_to, to_records
from fedmim.flower.state_dict import StateDict
from fedmim.flower.store import NodeStore
from fedmim.simulation.past_models import PastModels
from fedmim.simulation.server import is_finite
from fedmim.simulation.training import Reply, on


@dataclass(frozen=True)
class Incoming:
    """The inputs of one client at the start of a round."""

    message: Message
    layout: StateDict
    order: Order
    store: NodeStore
    down: Vectors  # from the method's `broadcast`, or from `send` for the client's number of steps
    slots: Vectors  # the client's own vectors
    buffers: list[Tensor]
    stateless: bool  # whether the client stores no vectors: the server does, or the method has none

    @classmethod
    def of(
        cls,
        message: Message,
        order: Order,
        state_dir: Path,
        algorithm: Algorithm,
        model: nn.Module,
        device: torch.device,
    ) -> Incoming:
        """Read the message and the client's disk; raise `LackingError` if past models are in neither."""
        store, layout = NodeStore(state_dir, order.run, order.client), StateDict(model)
        sent, slots, buffers = unpack_from_server(layout, message)
        past = PastModels(algorithm, order.agreed["history"])
        down = on(device, received(past, sent, store, order.round))
        stateless = bool(slots) or not algorithm.client_slots
        if not stateless:
            zeros = {name: torch.zeros_like(down["params"]) for name in algorithm.client_slots}
            slots = store.slots(zeros, order.round, order.state_round)
        return cls(message, layout, order, store, down, on(device, slots), buffers, stateless)

    def reply(
        self, reply: Reply, buffers: Sequence[Tensor], samples: int, metrics: MetricRecord | None = None
    ) -> Message:
        """The reply, with the user's own metrics. The vectors that the client keeps are written to its disk first."""
        finite = is_finite(reply)
        if finite and not self.stateless:
            self.store.put_slots(self.order.round, reply.slots)
        arrays = to_records(self.layout, reply.upload, reply.slots if self.stateless else {}, buffers)
        facts = {"num-examples": samples, "steps": reply.steps, "train_loss": reply.loss, "finite": int(finite)}
        return reply_to(self.message, arrays, {**(metrics or {}), **facts})


def unpack_from_server(layout: StateDict, message: Message) -> tuple[Vectors, Vectors, list[Tensor]]:
    """The vectors of the server's message; UserError if they are of a different model."""
    if ARRAYS not in message.content.array_records:
        raise UserError(f'message: it has no record "{ARRAYS}"; the server must run fedmim.flower.FlowerStrategy')
    try:
        return from_records(layout, message.content)
    except ValueError as error:
        raise UserError(f"model: this client's model is not the server's: {error}") from error
