"""A round's messages as the server writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedmim.algorithms import Vectors
from fedmim.flower.messages import ARRAYS, CONFIG, Order, prefixed, to_be_agreed, to_record
from fedmim.models import FlatModel
from fedmim.simulation.server import Server


@dataclass
class Outgoing:
    """What goes to the clients in one round."""

    server: Server
    flat: FlatModel  # for the buffers in their own types
    nodes: Mapping[int, int]  # client -> node
    config: ConfigRecord  # the user's own entries
    timeout: float
    _records: dict[tuple[str, ...], ArrayRecord] = field(default_factory=dict)  # those that several clients are sent

    def __post_init__(self) -> None:
        state, past = self.server.state, self.server.past
        if past.kept_by_clients:
            past.remember(state.round, state.params)
        self._broadcast = {} if past.kept_by_clients else self.server.algorithm.broadcast(state)

    def message(self, client: int, kind: str, complete: bool = False) -> Message:
        """A message with vectors; with `complete` all past models that a client can need."""
        content = RecordDict({ARRAYS: self._arrays(client, complete), CONFIG: self._config(client)})
        return Message(content, self.nodes[client], kind, ttl=self.timeout)

    def note(self, client: int, kind: str, timeout: float) -> Message:
        """A message without vectors."""
        return Message(RecordDict({CONFIG: self._config(client)}), self.nodes[client], kind, ttl=timeout)

    def _arrays(self, client: int, complete: bool) -> ArrayRecord:
        server, vectors = self.server, self._vectors(client, complete)
        self.flat.buffers = server.buffers
        if server.vectors_here and server.algorithm.client_slots:
            own = prefixed("slot", server.clients.get(client))
            return to_record(vectors | own, self.flat.buffer_tensors)
        names = tuple(vectors)
        if names not in self._records:
            self._records[names] = to_record(vectors, self.flat.buffer_tensors)
        return self._records[names]

    def _vectors(self, client: int, complete: bool) -> Vectors:
        past, t = self.server.past, self.server.state.round
        if not past.kept_by_clients:
            return self._broadcast
        rounds = past.needed(t) if complete else past.sent(client, t)
        return prefixed("model", {str(round): past.models[round] for round in rounds})

    def _config(self, client: int) -> ConfigRecord:
        server, settings = self.server, self.server.settings
        order = Order(
            run=server.facts["run"],
            round=server.state.round,
            client=client,
            lr=settings.lr_at(server.state.round),
            state_round=server.clients.places.get(client, -1),
            method=repr(server.algorithm),
            settings=to_be_agreed(settings),
        )
        return ConfigRecord({**self.config, **order.config()})
