"""FlowerStrategy: a Flower strategy for all methods."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import torch
import torch.nn.functional as F  # noqa: N812
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy
from torch import nn

from fedmim.algorithms import Algorithm
from fedmim.errors import UserError
from fedmim.flower.exchange import Exchange
from fedmim.flower.federation import Federation, log
from fedmim.flower.messages import FORGET, LISTEN
from fedmim.models import FlatModel
from fedmim.simulation.checkpoint import has_checkpoint
from fedmim.simulation.record import Record
from fedmim.simulation.server import Aggregation, Server
from fedmim.simulation.settings import Settings

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
ClientVectors = Literal["node", "server"]
FORGET_SECONDS = 60.0


class RoundFailedError(RuntimeError):
    """No reply was accepted in a round."""


class FlowerStrategy(Strategy):
    """Runs any method of fedmim over Flower. With the same seed, the run equals that of `fedmim.simulate`.

    algorithm, settings   as for `fedmim.simulate`; the clients must have the same
    model                 the model to train; `start(initial_arrays=...)` may set different initial values
    clients               N, the number of partitions
    min_available_nodes   number of clients that must be connected before the first round; None: all N
    wait                  seconds to wait for them; if they do not connect, the run ends with an error
    fraction_evaluate     fraction of the connected clients that evaluate the model after each round
    client_state          where the vectors of SCAFFOLD and FedDyn clients are kept between rounds: "node" (on each
                          client's own disk) or "server" (sent both ways, for clients without a persistent disk)
    folder, resume        where to write a checkpoint after each round, and whether to resume from the one there

    After the run, `history` has one `fedmim.Record` per round, and `failures` one line per client that failed in a
    round.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        settings: Settings,
        model: nn.Module,
        *,
        clients: int,
        min_available_nodes: int | None = None,
        wait: float = 300.0,
        fraction_evaluate: float = 0.0,
        client_state: ClientVectors = "node",
        folder: Path | str | None = None,
        resume: bool = False,
    ) -> None:
        least = clients if min_available_nodes is None else min_available_nodes
        if not 1 <= least <= clients:
            raise UserError(f"min_available_nodes: must be from 1 to {clients}, the number of clients, got {least}")
        if client_state not in get_args(ClientVectors):
            raise UserError(f"client_state: must be node or server, got {client_state!r}")
        self.algorithm, self.settings, self.client_state = algorithm, settings, client_state
        self.min_available_nodes = least
        self.folder, self.resume = Path(folder) if folder else None, resume
        if self.folder and has_checkpoint(self.folder) != resume:
            there = "no checkpoint to resume from" if resume else "already a run; use resume=True or a different folder"
            raise UserError(f"{folder}: there is {there}")
        self.federation = Federation(clients, wait)
        self._evaluation = None
        if fraction_evaluate:
            self._evaluation = FlowerFedAvg(
                fraction_evaluate=fraction_evaluate, min_evaluate_nodes=1, min_available_nodes=1
            )
        self._model = model
        self._timeout = 3600.0
        self._begin(None)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> FlowerResult:
        """Run all rounds (default: `settings.rounds`). A reply that takes longer than `timeout` seconds is ignored."""
        self._timeout = timeout
        self._begin(initial_arrays)
        done = self.server.state.round
        left = (num_rounds or self.settings.rounds) - done
        # Flower counts rounds from 1 even if a run is resumed.
        shifted = (lambda round, arrays: evaluate_fn(done + round, arrays)) if evaluate_fn else None
        result = super().start(grid, self.arrays, left, timeout, train_config, evaluate_config, shifted)
        if not self.folder:  # a run with a folder can be resumed
            self._forget(grid)
        if left <= 0:
            result.arrays = self.arrays
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {done + round: record for round, record in getattr(result, name).items()})
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample the round's clients and create a message for each."""
        self._begun, self._grid = time.perf_counter(), grid
        server, t = self.server, self.server.state.round
        least = self.min_available_nodes if not self.history else 1
        nodes = self.federation.present(grid, least)
        active = self.settings.active(self.federation.population)
        self._clients = self.federation.sample(self.settings.seed, t, active, nodes)
        steps = self.federation.steps
        self._exchange = exchange = Exchange(server, self._flat, nodes, steps, config, self._timeout)
        messages = [exchange.send(client, MessageType.TRAIN) for client in self._clients]
        if server.past.history == "broadcast":
            messages += [exchange.send(client, LISTEN) for client in sorted(set(nodes) - set(self._clients))]
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the replies and compute the next global model."""
        exchange = self._exchange
        exchange.take(replies)
        if exchange.lacking:
            clients = ", ".join(map(str, sorted(exchange.lacking)))
            log.info("clients %s lack past models or changed their number of steps; sending what they need", clients)
            again = [exchange.send(client, MessageType.TRAIN, complete=True) for client in sorted(exchange.lacking)]
            exchange.take(self._grid.send_and_receive(again, timeout=self._timeout))
            exchange.failures |= dict.fromkeys(exchange.lacking, "past models are missing although they were sent")
        record = self._aggregate()
        exchange.answers.clear()  # one model per client
        self.history.append(record)
        if self.folder:
            self.server.save()
        return self.arrays, self._metrics(record)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Same as Flower's FedAvg."""
        return self._evaluation.configure_evaluate(server_round, arrays, config, grid) if self._evaluation else []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Same as Flower's FedAvg."""
        return self._evaluation.aggregate_evaluate(server_round, replies) if self._evaluation else None

    def summary(self) -> None:
        """Log the method and the settings."""
        log.info("\t├──> %r", self.algorithm)
        log.info("\t├──> %s", self.settings)
        log.info("\t└──> %d clients, client_state: %s", self.federation.population, self.client_state)

    @property
    def arrays(self) -> ArrayRecord:
        """The global model as a Flower ArrayRecord, with the names of its state_dict."""
        module = self._flat.module_at(self.algorithm.output(self.server.state), self.server.buffers)
        return ArrayRecord(module.state_dict())

    def _begin(self, arrays: ArrayRecord | None) -> None:
        """Set the state before the first round, or restore that of the checkpoint."""
        self._flat = FlatModel(self._model, F.cross_entropy)  # the server computes no loss
        if arrays is not None:
            self._flat.module.load_state_dict(arrays.to_torch_state_dict())
        if self._flat.params.dtype == torch.bfloat16:
            raise UserError("model: Flower does not support bfloat16 arrays; use model.float()")
        self.history: list[Record] = []
        self.failures: list[str] = []
        facts = {"clients": self.federation.population, "client_state": self.client_state}
        here = self.client_state == "server"
        self.server = Server(self.algorithm, self.settings, self._flat, self.folder, facts=facts, vectors_here=here)
        if self.resume:
            self.server.restore()  # also the run's id
        else:
            self.server.facts["run"] = uuid.uuid4().hex

    def _aggregate(self) -> Record:
        """Compute the next state from the accepted replies, and return the record of the round."""
        server, exchange = self.server, self._exchange
        aggregation = Aggregation(server, exchange.broadcast)
        for reply, samples in sorted(exchange.answers.values(), key=lambda answer: (-answer[1], answer[0].client)):
            self.federation.samples[reply.client], self.federation.steps[reply.client] = samples, int(reply.steps)
            if not aggregation.take(reply, samples):
                exchange.failures[reply.client] = "the reply has values that are not finite"
        failures, round = sorted(exchange.failures.items()), server.state.round + 1
        for client, reason in failures:
            self.failures.append(f"round {round}: client {client}: {reason}")
            log.warning("%s", self.failures[-1])
        if not aggregation.accepted:
            server.rollback()
            reasons = "; ".join(f"client {client}: {reason}" for client, reason in failures)
            raise RoundFailedError(f"round {round}: no reply was accepted ({reasons})")
        closed = aggregation.close(self._total_weight, self._clients, exchange.bytes_up, exchange.bytes_down)
        server.commit(closed)
        return replace(closed.record, seconds=time.perf_counter() - self._begun)

    @property
    def _total_weight(self) -> float:
        """The weight of all N clients. Clients that never connected count as much as the others on average."""
        known, population = self.federation.samples, self.federation.population
        return sum(known.values()) * population / len(known) if self.settings.weighting == "samples" else population

    def _metrics(self, record: Record) -> MetricRecord:
        names = ("train_loss", "consistency", "lr", "bytes_up", "bytes_down", "refused", "seconds")
        facts = {name: getattr(record, name) for name in names}
        return MetricRecord({**facts, "clients": len(record.clients), "failed": len(self._exchange.failures)})

    def _forget(self, grid: Grid) -> None:
        """Tell the clients to remove their files, because the run has ended."""
        if self.server.past.kept_by_clients or (self.algorithm.client_slots and not self.server.vectors_here):
            messages = [self._exchange.note(client, FORGET, FORGET_SECONDS) for client in self._exchange.nodes]
            grid.send_and_receive(messages, timeout=FORGET_SECONDS)
