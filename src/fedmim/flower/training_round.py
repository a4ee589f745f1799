"""One round of training over Flower: who is asked, and how the replies become the next state of the server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedmim.flower.delivery import deliver
from fedmim.flower.exchange import Answer, Exchange
from fedmim.flower.federation import Federation, log
from fedmim.flower.messages import LISTEN, METRICS, LackingError
from fedmim.simulation.record import Record
from fedmim.simulation.server import Aggregation, Server
from fedmim.simulation.training import one_thread

UNREACHABLE = (0, 3, 4, 5)  # codes of Flower's errors about messages and nodes, not about what a client did


class RoundFailedError(RuntimeError):
    """No client of a round gave a reply that counts."""


class TrainingRound:
    """The clients of a round, in the order of the mean as in the simulator: those with the most samples first.

    After `aggregate`, `failures` has the reason for each client that failed, and `metrics` the metrics of the others.
    """

    def __init__(self, server: Server, federation: Federation, exchange: Exchange, clients: tuple[int, ...]) -> None:
        self.exchange, self.clients = exchange, clients
        self.failures: dict[int, str] = {}
        self.metrics: list[RecordDict] = []
        self._server, self._federation = server, federation
        self._begun = time.perf_counter()
        samples = federation.samples
        self._order = sorted(clients, key=lambda client: (-samples.get(client, 0), client))
        everyone = server.past.history == "broadcast"
        self._listeners = sorted(set(exchange.nodes) - set(clients)) if everyone else []

    def messages(self) -> Iterator[Message]:
        """The messages to the clients, then to those that only hear the new model."""
        for client in self._order:
            yield self.exchange.message(client, MessageType.TRAIN)
        for client in self._listeners:
            yield self.exchange.message(client, LISTEN)

    def aggregate(self, replies: Iterable[Message], grid: Grid, timeout: float) -> Record:
        """Average the replies, which are in the order of the messages, and make the next state current.

        Reads one reply after the other, and keeps none.
        """
        aggregation, federation = Aggregation(self._server, self.exchange.broadcast), self._federation
        for client, reply in zip([*self._order, *self._listeners], replies, strict=True):
            if reply.has_error() and reply.error.code in UNREACHABLE:
                federation.lost(client, self.exchange.nodes[client])
            try:
                if client in self._listeners:
                    self.exchange.check(reply)
                    continue
                answer = self._read(client, reply, grid, timeout)
            except ValueError as error:
                self.failures[client] = str(error)
                continue
            federation.samples[client], federation.steps[client] = answer.samples, int(answer.reply.steps)
            federation.weights[client] = answer.weight
            with one_thread():  # the vectors are added in small pieces, for which threads cost more than they give
                if aggregation.take(answer.reply, answer.weight):
                    self.metrics.append(RecordDict({METRICS: answer.metrics}))
        return self._close(aggregation)

    def _read(self, client: int, reply: Message, grid: Grid, timeout: float) -> Answer:
        """A client's reply. A client that lacks what it needs is sent it, and its second reply is awaited."""
        try:
            return self.exchange.read(client, reply)
        except LackingError:
            log.info("client %d lacks past models or changed its number of steps; sending what it needs", client)
        (reply,) = deliver(grid, [self.exchange.message(client, MessageType.TRAIN, complete=True)], timeout)
        try:
            return self.exchange.read(client, reply)
        except LackingError:
            raise ValueError("it lacks past models that it was sent") from None

    def _close(self, aggregation: Aggregation) -> Record:
        """End the round: log the failures, and make the next state current."""
        server, exchange, settings = self._server, self.exchange, self._server.settings
        number, failed = server.state.round + 1, len(self.failures)
        if not aggregation.accepted:
            server.rollback()
            self.failures |= aggregation.rejected
            raise RoundFailedError(f"round {number}: no reply was accepted ({'; '.join(self._log(number))})")
        total = self._federation.total_weight(settings.weighting == "samples")
        with one_thread():
            closed = aggregation.close(total, self.clients, exchange.bytes_up, exchange.bytes_down)
        self.failures |= aggregation.rejected  # complete after `close`
        self._log(number)
        if aggregation.accepted < settings.min_replies:
            few = f"{aggregation.accepted} replies were accepted, fewer than min_replies ({settings.min_replies})"
            log.warning("round %d: %s; the model is unchanged", number, few)
        server.commit(closed)
        return replace(closed.record, seconds=time.perf_counter() - self._begun, failed=failed)

    def _log(self, number: int) -> list[str]:
        """Log one line per reason; return these lines."""
        lines, failures = [], self.failures
        for reason in dict.fromkeys(failures[client] for client in sorted(failures)):
            clients = [str(client) for client in sorted(failures) if failures[client] == reason]
            lines.append(f"client{'s' if len(clients) > 1 else ''} {', '.join(clients)}: {reason}")
            log.warning("round %d: %s", number, lines[-1])
        return lines
