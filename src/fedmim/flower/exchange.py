"""One round's messages as the server writes them, and the replies to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from fedmim.algorithms import Vectors
from fedmim.flower.history import LackingError
from fedmim.flower.messages import ARRAYS, CONFIG, METRICS, Order, from_record, number, payload, to_be_agreed, to_record
from fedmim.models import FlatModel
from fedmim.models.flat import flat_buffers
from fedmim.simulation.server import Server
from fedmim.simulation.training import Reply

LACKING = f"{LackingError.__module__}.{LackingError.__qualname__}"


class Exchange:
    """The messages to clients in one round, their bytes, and the replies by client.

    `flat` has the buffers in their own types, `nodes` the node of each client, `config` the user's own entries.
    """

    def __init__(
        self, server: Server, flat: FlatModel, nodes: Mapping[int, int], config: ConfigRecord, timeout: float
    ) -> None:
        self.nodes = nodes
        self.answers: dict[int, tuple[Reply, int]] = {}  # client -> its reply, and the size of its data
        self.failures: dict[int, str] = {}  # client -> what happened
        self.lacking: set[int] = set()  # clients that lack past models which the server takes them to have
        self.bytes_down = 0
        self.bytes_up = 0
        self._server, self._config, self._timeout = server, config, timeout
        self._sent: list[tuple[int, Message]] = []
        self._records: dict[tuple[str, ...], ArrayRecord] = {}  # those that several clients are sent
        flat.buffers = server.buffers
        self._buffers = flat.buffer_tensors
        if server.past.kept_by_clients:
            server.past.remember(server.state.round, server.state.params)
        self._broadcast = {} if server.past.kept_by_clients else server.algorithm.broadcast(server.state)

    def send(self, client: int, kind: str, complete: bool = False) -> Message:
        """A message with vectors, which is about to be sent; with `complete` all past models that a client can need."""
        arrays = self._arrays(client, complete)
        content = RecordDict({ARRAYS: arrays, CONFIG: self._facts(client)})
        message = Message(content, self.nodes[client], kind, ttl=self._timeout)
        self._sent.append((client, message))
        self.bytes_down += payload(arrays)
        self.lacking.discard(client)
        return message

    def note(self, client: int, kind: str, timeout: float) -> Message:
        """A message without vectors."""
        return Message(RecordDict({CONFIG: self._facts(client)}), self.nodes[client], kind, ttl=timeout)

    def take(self, replies: Iterable[Message]) -> None:
        """Read the replies to all messages sent since the last call."""
        # A reply may not name its node where the node went away, but it always names the message.
        by_message = {reply.metadata.reply_to_message_id: reply for reply in replies}
        for client, message in self._sent:
            reply = by_message.get(message.metadata.message_id)
            if reply is None:
                self.failures[client] = f"no reply within {self._timeout:g} s"
            elif reply.has_error() and LACKING in (reply.error.reason or ""):  # from a training function of the user's
                self.lacking.add(client)
            elif reply.has_error():
                self.failures[client] = reply.error.reason or f"error {reply.error.code}"
            elif message.metadata.message_type == "train":
                self._read(client, reply.content)
        self._sent = []

    def _arrays(self, client: int, complete: bool) -> ArrayRecord:
        server, vectors = self._server, self._vectors(client, complete)
        if server.vectors_here and server.algorithm.client_slots:
            return to_record(vectors, server.clients.get(client), self._buffers)
        names = tuple(vectors)
        if names not in self._records:
            self._records[names] = to_record(vectors, {}, self._buffers)
        return self._records[names]

    def _vectors(self, client: int, complete: bool) -> Vectors:
        past, t = self._server.past, self._server.state.round
        if not past.kept_by_clients:
            return self._broadcast
        rounds = past.needed(t) if complete else past.sent(client, t)
        return {f"model.{round}": past.models[round] for round in rounds}

    def _facts(self, client: int) -> ConfigRecord:
        server, settings = self._server, self._server.settings
        order = Order(
            run=server.facts["run"],
            round=server.state.round,
            client=client,
            lr=settings.lr_at(server.state.round),
            state_round=server.clients.places.get(client, -1),
            method=repr(server.algorithm),
            settings=to_be_agreed(settings),
        )
        return ConfigRecord({**self._config, **order.config()})

    def _read(self, client: int, content: RecordDict) -> None:
        arrays, metrics = content.array_records.get(ARRAYS), content.metric_records.get(METRICS)
        if arrays is None or metrics is None:
            self.failures[client] = f'its reply lacks the records "{ARRAYS}" and "{METRICS}"'
            return
        self.bytes_up += payload(arrays)
        if metrics.get("lacking"):
            self.lacking.add(client)
            return
        try:
            upload, slots, buffers = from_record(arrays)
            loss, samples = number(metrics, "train_loss"), int(number(metrics, "num-examples"))
        except (ValueError, TypeError, KeyError) as error:
            self.failures[client] = f"its reply cannot be read ({error})"
            return
        reply = Reply(client, upload, slots, flat_buffers(buffers), loss, bool(metrics.get("finite", 1)))
        if obstacle := self._unfit(reply) or ("it has no data" if samples < 1 else None):
            self.failures[client] = obstacle
        else:
            self.answers[client] = reply, samples

    def _unfit(self, reply: Reply) -> str | None:
        """Why a reply cannot be averaged with the others; None where it can."""
        params, buffers = self._server.state.params, self._server.buffers
        names = set(next(iter(self.answers.values()))[0].upload) if self.answers else {"params"}
        if not names <= set(reply.upload) or (self.answers and names != set(reply.upload)):
            return f"its reply has the vectors {', '.join(reply.upload) or 'none'}, others {', '.join(sorted(names))}"
        vectors: Vectors = {**reply.upload, **reply.slots}
        for name, vector in vectors.items():
            if (vector.shape, vector.dtype) != (params.shape, params.dtype):
                return f"its {name} is {shape_and_type(vector)}, the model {shape_and_type(params)}"
        if reply.buffers.shape != buffers.shape:
            return f"its buffers have {len(reply.buffers)} numbers, the model's {len(buffers)}"
        return None


def shape_and_type(vector: Tensor) -> str:
    """The shape and type of a vector in words."""
    return f"{tuple(vector.shape)} of {str(vector.dtype).removeprefix('torch.')}"
