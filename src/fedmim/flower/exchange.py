"""The server's messages of one round, and the clients' replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedmim.algorithms import Vectors
from fedmim.flower.messages import (
    ARRAYS,
    CONFIG,
    METRICS,
    LackingError,
    Order,
    count,
    from_records,
    number,
    payload,
    recipe,
    to_be_agreed,
    to_records,
)
from fedmim.flower.state_dict import StateDict
from fedmim.models import FlatModel
from fedmim.models.flat import flat_buffers
from fedmim.simulation.server import Server
from fedmim.simulation.training import Reply
from fedmim.simulation.wire import Wire

LACKING = f"{LackingError.__module__}.{LackingError.__qualname__}"


@dataclass(frozen=True)
class Answer:
    """A client's reply that fits the method and the model."""

    reply: Reply
    weight: float  # in the mean
    samples: int
    metrics: MetricRecord  # with the user's own


class Exchange:
    """The messages to the clients in one round, their bytes, and how replies are read.

    `flat` holds the buffers in their own dtypes. `nodes` maps each client to its node, `steps` to its number of local
    steps if the client has reported it. `config` holds the user's own entries.
    """

    def __init__(
        self,
        server: Server,
        layout: StateDict,
        flat: FlatModel,
        nodes: Mapping[int, int],
        steps: Mapping[int, int],
        config: ConfigRecord,
        timeout: float,
        weighted_by: str,
    ) -> None:
        self.nodes = nodes
        self.bytes_down = 0
        self.bytes_up = 0
        self._server, self._layout, self._steps, self._config = server, layout, steps, config
        self._timeout, self._weighted_by = timeout, weighted_by
        wire = Wire.of(server.algorithm, server.state.params)
        slots = wire.slots if server.vectors_here else {}
        self._expected = {name: size for name, size in wire.upload.items() if name != "params"}
        self._expected |= {f"slot.{name}": size for name, size in slots.items()}
        self._records: dict[tuple[object, ...], dict[str, ArrayRecord]] = {}  # records that are sent to several clients
        flat.buffers = server.buffers
        self._buffers = flat.buffer_tensors
        self._landing = layout.empty()  # a reply's vector is valid until the next one is read
        if server.past.kept_by_clients:
            server.past.remember(server.state.round, server.state.params)
        self.broadcast = server.algorithm.broadcast(server.state)

    def message(self, client: int, kind: str, complete: bool = False) -> Message:
        """A message with vectors; adds its bytes. With `complete`, it has all past models that a client may need."""
        steps = 0 if complete or self._server.past.kept_by_clients else self._steps.get(client, 0)
        content = RecordDict({**self._arrays(client, steps, complete), CONFIG: self._facts(client, steps)})
        self.bytes_down += payload(content)
        return Message(content, self.nodes[client], kind, ttl=self._timeout)

    def note(self, client: int, kind: str, timeout: float) -> Message:
        """A message without vectors."""
        return Message(RecordDict({CONFIG: self._facts(client)}), self.nodes[client], kind, ttl=timeout)

    def read(self, client: int, message: Message) -> Answer:
        """A client's reply to a training message.

        Raises LackingError if the client needs a complete message, and ValueError with the reason if the reply cannot
        be used, whatever is in it.
        """
        self.check(message)
        content = message.content
        if ARRAYS not in content.array_records or METRICS not in content.metric_records:
            raise ValueError(f'the reply must have the records "{ARRAYS}" and "{METRICS}"')
        self.bytes_up += payload(content)
        metrics = content.metric_records[METRICS]
        if metrics.get("lacking"):
            raise LackingError
        try:
            return self._answer(client, content, metrics)
        except ValueError:
            raise
        except Exception as error:  # a reply must never end the run
            raise ValueError(f"the reply cannot be read ({type(error).__name__}: {error})") from error

    def check(self, message: Message) -> None:
        """Raise ValueError, or LackingError, if the reply is an error."""
        if message.has_error():
            reason = message.error.reason or f"error {message.error.code}"
            raise LackingError if LACKING in reason else ValueError(reason)  # raised in the user's training function

    def _answer(self, client: int, content: RecordDict, metrics: MetricRecord) -> Answer:
        server = self._server
        if "steps" not in metrics and not server.algorithm.plain_sgd:
            raise ValueError(
                f"it does not train with {server.algorithm.title}: in its app, use ClientApp of fedmim.flower, and "
                "FlowerOptimizer(model, steps=...) in place of torch.optim.SGD"
            )
        samples = count(metrics, "num-examples")
        weight = float(number(metrics, self._weighted_by)) if server.settings.weighting == "samples" else 1.0
        if weight <= 0:
            raise ValueError(f"{self._weighted_by} must be above 0, got {weight:g}")
        steps = count(metrics, "steps") if "steps" in metrics else 1
        # As a NaN in the vectors, a loss that is not finite is counted as rejected, not as a failure.
        loss = metrics.get("train_loss", 0.0)
        if not isinstance(loss, int | float):
            raise ValueError("train_loss must be a number")
        upload, slots, buffers = from_records(self._layout, content, self._expected, self._landing)
        reply = Reply(client, upload, slots, flat_buffers(buffers), float(loss), steps, bool(metrics.get("finite", 1)))
        return Answer(reply, weight, samples, metrics)

    def _arrays(self, client: int, steps: int, complete: bool) -> dict[str, ArrayRecord]:
        server, vectors = self._server, self._vectors(client, steps, complete)
        if server.vectors_here and server.algorithm.client_slots:
            return to_records(self._layout, vectors, server.clients.get(client), self._buffers)
        key = steps, *vectors
        if key not in self._records:
            self._records[key] = to_records(self._layout, vectors, {}, self._buffers)
        return self._records[key]

    def _vectors(self, client: int, steps: int, complete: bool) -> Vectors:
        past, t = self._server.past, self._server.state.round
        if not past.kept_by_clients:
            return self._server.algorithm.send(self.broadcast, float(steps)) if steps else self.broadcast
        rounds = past.needed(t) if complete else past.sent(client, t)
        older = {f"model.{round}": past.models[round] for round in rounds if round < t}
        return {"params": past.models[t], **older}

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
            recipe=recipe(server.algorithm),
            settings=to_be_agreed(settings),
        )
        return ConfigRecord({**self._config, **order.config()})
