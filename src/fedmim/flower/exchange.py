"""The server's messages of one round, and the clients' replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedmim.algorithms import Vectors
from fedmim.flower.messages import (
    ARRAYS,
    CONFIG,
    METRICS,
    LackingError,
    Order,
    from_record,
    number,
    payload,
    to_be_agreed,
    to_record,
)
from fedmim.models import FlatModel
from fedmim.models.flat import flat_buffers
from fedmim.simulation.server import Server
from fedmim.simulation.training import Reply
from fedmim.simulation.wire import Sizes, Wire

LACKING = f"{LackingError.__module__}.{LackingError.__qualname__}"


class Exchange:
    """The messages to the clients in one round, their bytes, and the replies by client.

    `flat` holds the buffers in their own dtypes. `nodes` maps each client to its node, `steps` to its number of local
    steps if the client has reported it. `config` holds the user's own entries.
    """

    def __init__(
        self,
        server: Server,
        flat: FlatModel,
        nodes: Mapping[int, int],
        steps: Mapping[int, int],
        config: ConfigRecord,
        timeout: float,
    ) -> None:
        self.nodes, self._steps = nodes, steps
        self._wire = Wire.of(server.algorithm, server.state.params)
        self.answers: dict[int, tuple[Reply, int]] = {}  # client -> its reply and number of samples
        self.failures: dict[int, str] = {}  # client -> reason
        self.lacking: set[int] = set()  # clients that raised LackingError
        self.bytes_down = 0
        self.bytes_up = 0
        self._server, self._config, self._timeout = server, config, timeout
        self._sent: list[tuple[int, Message]] = []
        self._records: dict[tuple[object, ...], ArrayRecord] = {}  # records that are sent to several clients
        flat.buffers = server.buffers
        self._buffers = flat.buffer_tensors
        if server.past.kept_by_clients:
            server.past.remember(server.state.round, server.state.params)
        self.broadcast = server.algorithm.broadcast(server.state)

    def send(self, client: int, kind: str, complete: bool = False) -> Message:
        """A message with vectors; adds its bytes. With `complete`, it has all past models that a client may need."""
        steps = 0 if complete or self._server.past.kept_by_clients else self._steps.get(client, 0)
        arrays = self._arrays(client, steps, complete)
        content = RecordDict({ARRAYS: arrays, CONFIG: self._facts(client, steps)})
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
        # If the node has disconnected, the reply may not name the node, but it always names the message.
        by_message = {reply.metadata.reply_to_message_id: reply for reply in replies}
        for client, message in self._sent:
            reply = by_message.get(message.metadata.message_id)
            if reply is None:
                self.failures[client] = f"no reply within {self._timeout:g} s"
            elif reply.has_error() and LACKING in (reply.error.reason or ""):  # from the user's training function
                self.lacking.add(client)
            elif reply.has_error():
                self.failures[client] = reply.error.reason or f"error {reply.error.code}"
            elif message.metadata.message_type == "train":
                self._read(client, reply.content)
        self._sent = []

    def _arrays(self, client: int, steps: int, complete: bool) -> ArrayRecord:
        server, vectors = self._server, self._vectors(client, steps, complete)
        if server.vectors_here and server.algorithm.client_slots:
            return to_record(vectors, server.clients.get(client), self._buffers)
        key = steps, *vectors
        if key not in self._records:
            self._records[key] = to_record(vectors, {}, self._buffers)
        return self._records[key]

    def _vectors(self, client: int, steps: int, complete: bool) -> Vectors:
        past, t = self._server.past, self._server.state.round
        if not past.kept_by_clients:
            return self._server.algorithm.send(self.broadcast, float(steps)) if steps else self.broadcast
        rounds = past.needed(t) if complete else past.sent(client, t)
        return {f"model.{round}": past.models[round] for round in rounds}

    def _facts(self, client: int, steps: int = 0) -> ConfigRecord:
        server, settings = self._server, self._server.settings
        order = Order(
            run=server.facts["run"],
            round=server.state.round,
            client=client,
            lr=settings.lr_at(server.state.round),
            state_round=server.clients.places.get(client, -1),
            steps=steps,
            method=repr(server.algorithm),
            settings=to_be_agreed(settings),
        )
        return ConfigRecord({**self._config, **order.config()})

    def _read(self, client: int, content: RecordDict) -> None:
        arrays, metrics = content.array_records.get(ARRAYS), content.metric_records.get(METRICS)
        if arrays is None or metrics is None:
            self.failures[client] = f'the reply must have the records "{ARRAYS}" and "{METRICS}"'
            return
        self.bytes_up += payload(arrays)
        if metrics.get("lacking"):
            self.lacking.add(client)
            return
        try:
            upload, slots, buffers = from_record(arrays)
            loss, samples, steps = number(metrics, "train_loss"), *_counts(metrics, "num-examples", "steps")
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            self.failures[client] = f"the reply cannot be read ({error})"
            return
        reply = Reply(client, upload, slots, flat_buffers(buffers), loss, steps, bool(metrics.get("finite", 1)))
        if obstacle := self._unfit(reply):
            self.failures[client] = obstacle
        else:
            self.answers[client] = reply, samples

    def _unfit(self, reply: Reply) -> str | None:
        """The reason why a reply cannot be averaged with the others; None if it can."""
        params, buffers = self._server.state.params, self._server.buffers
        slots = self._wire.slots if self._server.vectors_here else {}
        for vectors, expected in ((reply.upload, self._wire.upload), (reply.slots, slots)):
            if obstacle := _unexpected(vectors, expected, params):
                return obstacle
        if reply.buffers.shape != buffers.shape:
            return f"the buffers in the reply have {len(reply.buffers)} elements, those of the model {len(buffers)}"
        return None


def _unexpected(vectors: Vectors, expected: Sizes, params: Tensor) -> str | None:
    """How vectors differ from those of the method; None if they do not."""
    if set(vectors) != set(expected):
        return f"the reply has the vectors {_listed(vectors)}, the method expects {_listed(expected)}"
    for name, size in expected.items():
        if (vectors[name].shape, vectors[name].dtype) != ((size,), params.dtype):
            found, wanted = shape_and_type(vectors[name]), f"({size},) of {_type(params)}"
            return f"{name} in the reply is {found}, the method expects {wanted}"
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _counts(metrics: MetricRecord, *names: str) -> list[int]:
    """The metrics of these names as integers of at least 1."""
    counts = [int(number(metrics, name)) for name in names]
    if too_few := [name for name, count in zip(names, counts, strict=True) if count < 1]:
        raise ValueError(f"{too_few[0]} must be at least 1")
    return counts


def _type(vector: Tensor) -> str:
    return str(vector.dtype).removeprefix("torch.")


def shape_and_type(vector: Tensor) -> str:
    """Shape and dtype of a vector as text."""
    return f"{tuple(vector.shape)} of {_type(vector)}"
