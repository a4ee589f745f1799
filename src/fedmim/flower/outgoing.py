"""A round's messages as the server writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedmim.algorithms import Algorithm
from fedmim.flower.messages import ARRAYS, CONFIG, Order, prefixed, to_be_agreed, to_record
from fedmim.flower.server import Server
from fedmim.models import FlatModel
from fedmim.simulation.settings import Settings


@dataclass
class Outgoing:
    """What goes to the clients in one round."""

    algorithm: Algorithm
    settings: Settings
    server: Server
    flat: FlatModel  # for the buffers in their own types
    nodes: Mapping[int, int]  # client -> node
    config: ConfigRecord  # the user's own entries
    timeout: float
    _records: dict[tuple[str, ...], ArrayRecord] = field(default_factory=dict)  # those that several clients are sent

    def message(self, client: int, kind: str, complete: bool = False) -> Message:
        """A message with vectors, with `complete` all past models that can be needed."""
        content = RecordDict({ARRAYS: self._arrays(client, complete), CONFIG: self._config(client)})
        return Message(content, self.nodes[client], kind, ttl=self.timeout)

    def note(self, client: int, kind: str, timeout: float) -> Message:
        """A message without vectors."""
        return Message(RecordDict({CONFIG: self._config(client)}), self.nodes[client], kind, ttl=timeout)

    def _arrays(self, client: int, complete: bool) -> ArrayRecord:
        vectors = self.server.history.down(client, complete)
        self.flat.buffers = self.server.buffers
        if self.server.keeps_vectors:
            own = prefixed("slot", self.server.clients.get(client))
            return to_record(vectors | own, self.flat.buffer_tensors)
        names = tuple(vectors)
        if names not in self._records:
            self._records[names] = to_record(vectors, self.flat.buffer_tensors)
        return self._records[names]

    def _config(self, client: int) -> ConfigRecord:
        state = self.server.state
        order = Order(
            run=self.server.run,
            round=state.round,
            client=client,
            lr=self.settings.lr_at(state.round),
            state_round=self.server.clients.places.get(client, -1),
            method=repr(self.algorithm),
            settings=to_be_agreed(self.settings),
        )
        return ConfigRecord({**self.config, **order.config()})
