"""FlowerStrategy: the server of every method, as a Flower strategy."""

from __future__ import annotations

import math
import secrets
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal, get_args

import torch.nn.functional as F  # noqa: N812
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy
from torch import nn

from fedmim.algorithms import Algorithm
from fedmim.algorithms.compression import is_compressed
from fedmim.errors import UserError
from fedmim.experiments.config import Problem
from fedmim.flower.advice import learning_rate_advice
from fedmim.flower.delivery import deliver
from fedmim.flower.evaluation import Evaluation, scores
from fedmim.flower.exchange import Exchange
from fedmim.flower.federation import Federation, PartitionKeys, log
from fedmim.flower.messages import FORGET
from fedmim.flower.metrics import MetricsFn, weighted_means
from fedmim.flower.recording import Recording
from fedmim.flower.state_dict import StateDict
from fedmim.flower.training_round import TrainingRound
from fedmim.models import FlatModel
from fedmim.simulation.callbacks import Callback, MakeModel, RunInfo, telling
from fedmim.simulation.participation import check_real_clients
from fedmim.simulation.privacy import check_delta
from fedmim.simulation.record import Record
from fedmim.simulation.robust import check_uploads
from fedmim.simulation.server import Server
from fedmim.simulation.settings import Settings, at_least, check_replies
from fedmim.simulation.stopping import Stopping
from fedmim.simulation.wire import Wire

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
ClientVectors = Literal["node", "server"]
FORGET_SECONDS = 60.0


class FlowerStrategy(Strategy):
    """Any method of fedmim over Flower's messages.

    The options that Flower's FedAvg has mean the same here and have the same defaults: all connected nodes train, the
    mean is weighted by num-examples, and gradients are neither clipped nor decayed. The learning rate is "lr" of
    `start(train_config=...)`. With `settings` and `clients`, a run equals `fedmim.simulate` with the same seed, bit for
    bit; these then replace fraction_train, weighted_by_key and the learning rate.

    algorithm, model      the method, and the model whose parameters are trained
    settings, clients     the simulator's settings, which the clients must have, too, and N, the number of partitions
    min_available_nodes   how many nodes must be connected before the first round; 2, or all `clients`
    wait                  seconds to wait for them; the run then ends with an error
    fraction_evaluate     the fraction of the connected nodes that evaluate the model after each round; 1, or 0 with
                          `settings`
    client_state          where the vectors of SCAFFOLD's and FedDyn's clients are kept between rounds: "node" (on the
                          client's disk) or "server" (sent both ways, for clients without a persistent disk)
    partition_keys        which node may have a partition, if nodes are authenticated: "any", "first" (the key that
                          first claims it), or the public key file of each partition. Needs `clients`
    folder, resume        a run folder for `fedmim report`, with a checkpoint after each round, and whether to resume it
    problem, label        what the run folder says about data and model, and the name of the run
    callbacks             called after each round, as by `fedmim.simulate`

    After the run, `history` has one `fedmim.Record` per round, and `failures` one line per client that failed.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        model: nn.Module,
        settings: Settings | None = None,
        *,
        clients: int | None = None,
        fraction_train: float = 1.0,
        fraction_evaluate: float | None = None,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int | None = None,
        weighted_by_key: str = "num-examples",
        train_metrics_aggr_fn: MetricsFn | None = None,
        evaluate_metrics_aggr_fn: MetricsFn | None = None,
        wait: float = 300.0,
        client_state: ClientVectors = "node",
        partition_keys: PartitionKeys = "any",
        folder: Path | str | None = None,
        resume: bool = False,
        problem: Problem | None = None,
        label: str | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        if not (isinstance(algorithm, Algorithm) and isinstance(model, nn.Module)):
            raise UserError("FlowerStrategy: the first two arguments are a method and an nn.Module")
        if is_compressed(algorithm):
            raise UserError(f"method: {algorithm.title} is for simulations; Flower would send its vectors whole")
        if algorithm.reference:
            raise UserError(f"method: {algorithm.title} is for simulations; it has no communication")
        if settings is not None and clients is None:
            raise UserError("clients: name the number of partitions, which the settings' participation is a part of")
        if clients is not None:
            at_least("clients", clients, 1)
        at_least("min_train_nodes", min_train_nodes, 1)
        at_least("min_evaluate_nodes", min_evaluate_nodes, 1)
        if not 0 < fraction_train <= 1:
            raise UserError(f"fraction_train: must be above 0 and at most 1, got {fraction_train}")
        if fraction_evaluate is not None and not 0 <= fraction_evaluate <= 1:
            raise UserError(f"fraction_evaluate: must be between 0 and 1, got {fraction_evaluate}")
        if not 0 <= wait < math.inf:
            raise UserError(f"wait: must be a number of seconds, at least 0, got {wait}")
        if client_state not in get_args(ClientVectors):
            raise UserError(f"client_state: must be node or server, got {client_state!r}")
        least = (clients or 2) if min_available_nodes is None else min_available_nodes
        if least < 1 or (clients is not None and least > clients):
            allowed = f"from 1 to {clients}, the number of clients" if clients else "at least 1"
            raise UserError(f"min_available_nodes: must be {allowed}, got {least}")
        if resume and not folder:
            raise UserError("folder: name the folder to resume from")
        self.algorithm, self.client_state = algorithm, client_state
        self.min_available_nodes, self.min_train_nodes, self.fraction_train = least, min_train_nodes, fraction_train
        self.weighted_by_key, self.train_metrics_aggr_fn = weighted_by_key, train_metrics_aggr_fn
        self.federation = Federation(clients, wait, partition_keys)
        self.failures: list[str] = []
        self.history: list[Record] = []
        self._given = settings
        self.settings = settings or Settings(
            participation=fraction_train, lr_decay=1.0, weight_decay=0.0, clip_norm=None, weighting="samples"
        )
        evaluate = (0.0 if settings else 1.0) if fraction_evaluate is None else fraction_evaluate
        self._evaluation = Evaluation(evaluate, min_evaluate_nodes, weighted_by_key, evaluate_metrics_aggr_fn)
        self._model, self._layout = model, StateDict(model)
        self._landing = self._layout.empty()  # a reply's vector is valid until the next one is read
        if settings is not None and clients is not None:
            check_real_clients(settings, "with Flower")
            check_replies(settings, clients)
            check_delta(settings, clients)
            check_uploads(settings, clients, self._landing)
            if settings.dp_noise is not None:
                self._check_private(evaluate, client_state, train_metrics_aggr_fn)
        self._recording = Recording(Path(folder), resume, problem) if folder else None
        self._callbacks, self._label = callbacks, label or algorithm.title
        self._running = self._waited = False
        self._timeout = 3600.0
        if settings is not None:
            self._begin(None)  # finds mistakes before the run

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
        """Run all rounds: `num_rounds`, or those of the settings, or 3.

        A client that takes longer than `timeout` seconds is left out of the round. A resumed run continues with the
        round after the last one, up to `num_rounds` in all.
        """
        if not timeout > 0:
            raise UserError(f"timeout: must be a number of seconds above 0, got {timeout}")
        self._timeout = timeout
        train_config, evaluate_config = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
        self._settle(num_rounds, train_config)
        if self.settings.stops_early and not (evaluate_fn or self._evaluation.fraction):
            raise UserError("until, patience: need an evaluation; give start(evaluate_fn=...) or fraction_evaluate")
        self._begin(initial_arrays)
        self._running, self._waited = True, False
        try:
            info = RunInfo.of(self._label, self.algorithm, asdict(self.settings))
            writing = self._recording.writing(self.server) if self._recording else nullcontext()
            with telling(self._callbacks, info) as tell, writing:
                result = self._rounds(grid, train_config, evaluate_config, evaluate_fn, tell)
                if self._recording:
                    self._recording.finish(self.module, self.server.state.round)
            if not self._recording:  # a run with a folder can be extended
                self._forget(grid)
        finally:
            self._running = False
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample the round's clients, and create a message for each."""
        self._check_running()
        self._grid, server, t = grid, self.server, self.server.state.round
        nodes = self.federation.present(grid, 1 if self._waited else self.min_available_nodes)
        self._waited = True
        if self._given:
            active = self.settings.active(self.federation.population)
        else:
            active = max(int(len(nodes) * self.fraction_train), self.min_train_nodes)
        # With differential privacy the sample is secret, and an absent client counts as zero: no other takes its place.
        private = self.settings.dp_noise is not None
        clients = self.federation.sample(server.noise_seed, t, active, nodes, substitutes=not private)
        exchange = Exchange(
            server,
            self._wire,
            self._layout,
            self._flat,
            nodes,
            self.federation.steps,
            config,
            self._timeout,
            self.weighted_by_key,
            self._landing,
        )
        self._round = TrainingRound(server, self.federation, exchange, clients)
        return self._round.messages()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the replies, which are in the order of the messages, and compute the next global model."""
        self._check_running()
        number = self.server.state.round + 1
        try:
            record = self._round.aggregate(replies, self._grid, self._timeout)
        finally:
            failures = sorted(self._round.failures.items())
            self.failures += [f"round {number}: client {client}: {reason}" for client, reason in failures]
        self.history.append(record)
        return self.arrays, self._metrics(record, self._round.metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As Flower's FedAvg."""
        return self._evaluation.configure(server_round, arrays, config, list(self._round.exchange.nodes.values()))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As Flower's FedAvg, without the replies that cannot be used."""
        found, failures = self._evaluation.aggregate(replies)
        for node, reason in failures:
            self.failures.append(f"round {server_round}: evaluation by node {node}: {reason}")
            log.warning("%s", self.failures[-1])
        return found

    def summary(self) -> None:
        """Log the method and the settings."""
        log.info("\t├──> %r", self.algorithm)
        log.info("\t├──> %s", self.settings)
        clients = "the connected nodes" if not self._given else f"{self.federation.population} clients"
        log.info("\t└──> %s, client_state: %s", clients, self.client_state)
        if not self._given and (advice := learning_rate_advice(self.algorithm, self.settings.lr)):
            log.warning("%s", advice)

    @property
    def module(self) -> nn.Module:
        """The global model as a module, in evaluation mode."""
        return self._flat.module_at(self.algorithm.output(self.server.state), self.server.buffers)

    @property
    def arrays(self) -> ArrayRecord:
        """The global model as Flower has it, named like its state_dict."""
        self._flat.buffers = self.server.buffers
        return self._layout.record(self.algorithm.output(self.server.state), self._flat.buffer_tensors)

    def _settle(self, num_rounds: int | None, train_config: ConfigRecord) -> None:
        """The settings of the run, with what `start` says about them."""
        rounds = num_rounds if num_rounds is not None else (self._given.rounds if self._given else 3)
        if rounds < 0:
            raise UserError(f"num_rounds: must be at least 0, got {rounds}")
        self._num_rounds = rounds
        self.settings = replace(self.settings, rounds=max(1, rounds))
        if self._given is None:
            lr = train_config.get("lr")
            if not isinstance(lr, int | float):
                raise UserError('lr: give the learning rate, start(train_config=ConfigRecord({"lr": 0.1}))')
            self.settings = replace(self.settings, lr=float(lr))

    def _begin(self, arrays: ArrayRecord | None) -> None:
        """Set up the state before the first round, or restore it from the checkpoint."""
        self._flat = FlatModel(self._model, F.cross_entropy)  # the server computes no loss
        if arrays is not None:
            self._flat.module.load_state_dict(arrays.to_torch_state_dict())
        self.history, self.failures = [], []
        facts = {"clients": self.federation.fixed, "client_state": self.client_state}
        here, folder = self.client_state == "server", self._recording.path if self._recording else None
        secret = None
        if self.settings.dp_noise is not None and not (self._recording and self._recording.resumes):
            secret = secrets.randbits(256)
        self.server = Server(
            self.algorithm, self.settings, self._flat, folder, facts=facts, vectors_here=here, noise_seed=secret
        )
        if self._recording:
            clients = self.federation.fixed or self.min_available_nodes
            self.history = self._recording.load(self.server, type(self._model).__name__, clients, self._label)
        self._wire = Wire.of(self.algorithm, self.server.state.params)
        self.server.facts.setdefault("run", uuid.uuid4().hex)
        self.server.facts.setdefault("keys", {})
        self.federation.keys = self.server.facts["keys"]  # saved with each checkpoint

    def _rounds(
        self,
        grid: Grid,
        train_config: ConfigRecord,
        evaluate_config: ConfigRecord,
        evaluate_fn: EvaluateFn | None,
        tell: Callable[[Record, MakeModel], None],
    ) -> FlowerResult:
        """Flower's loop, from the round after the last one, to the last or until the settings stop it."""
        result, arrays, done = FlowerResult(), self.arrays, self.server.state.round
        log.info("Starting %s: rounds %d to %d", type(self).__name__, done + 1, self._num_rounds)
        self.summary()
        result.arrays = arrays
        if evaluate_fn and (found := evaluate_fn(done, arrays)) is not None:
            result.evaluate_metrics_serverapp[done] = found
        stopping = Stopping(self.settings)
        for record in self.history:
            stopping.see(record.round, record.test_accuracy)
        for number in range(done + 1, self._num_rounds + 1):
            if stopping.reason:
                break
            log.info("")
            log.info("[ROUND %d/%d]", number, self._num_rounds)
            messages = self.configure_train(number, arrays, train_config, grid)
            trained, metrics = self.aggregate_train(number, deliver(grid, messages, self._timeout))
            if trained is not None:
                result.arrays = arrays = trained
            if metrics is not None:
                log.info("\t└──> Aggregated MetricRecord: %s", metrics)
                result.train_metrics_clientapp[number] = metrics
            messages = self.configure_evaluate(number, arrays, evaluate_config, grid)
            by_clients = self.aggregate_evaluate(number, deliver(grid, messages, self._timeout))
            if by_clients is not None:
                log.info("\t└──> Aggregated MetricRecord: %s", by_clients)
                result.evaluate_metrics_clientapp[number] = by_clients
            by_server = evaluate_fn(number, arrays) if evaluate_fn else None
            if by_server is not None:
                log.info("\t└──> MetricRecord: %s", by_server)
                result.evaluate_metrics_serverapp[number] = by_server
            self._end_round(by_server if by_server is not None else by_clients)
            stopping.see(number, self.history[-1].test_accuracy)
            tell(self.history[-1], lambda: self.module)
        if stopping.reason:
            log.info("%s", stopping.reason)
        return result

    def _end_round(self, evaluation: MetricRecord | None) -> None:
        """Complete the record of the round, and write it and a checkpoint."""
        accuracy, loss = scores(evaluation)
        self.history[-1] = record = replace(self.history[-1], test_accuracy=accuracy, test_loss=loss)
        if self._recording:
            self._recording.add(record)

    def _metrics(self, record: Record, replies: list[RecordDict]) -> MetricRecord:
        """The facts of the round, and the means of the clients' own metrics."""
        names = (
            *("train_loss", "consistency", "epsilon", "lr"),
            *("bytes_up", "bytes_down", "refused", "failed", "seconds"),
        )
        facts = {name: value for name in names if (value := getattr(record, name)) is not None}
        own = MetricRecord()
        if self.settings.dp_noise is None:  # clients' metrics have no noise
            own = (self.train_metrics_aggr_fn or weighted_means)(replies, self.weighted_by_key)
        return MetricRecord({**own, **facts, "clients": len(record.clients)})

    def _check_private(self, evaluate: float, client_state: ClientVectors, metrics_fn: MetricsFn | None) -> None:
        """Reject what would publish clients' data without noise."""
        if evaluate or metrics_fn:
            name = "fraction_evaluate" if evaluate else "train_metrics_aggr_fn"
            raise UserError(f"{name}: the clients' metrics have no noise; with dp_noise, evaluate on the server")
        if client_state == "server" and self.algorithm.client_slots:
            raise UserError('client_state: with dp_noise the server must not keep the clients\' vectors; use "node"')

    def _check_running(self) -> None:
        if not self._running:
            raise UserError(
                "FlowerStrategy: call its own start(); a strategy around it, such as Flower's differential privacy, "
                "would add its noise to arrays that are not used, and so have no effect; use Settings(dp_noise=...)"
            )

    def _forget(self, grid: Grid) -> None:
        """The run has ended: clients may remove their files."""
        kept = self.server.past.kept_by_clients or (self.algorithm.client_slots and not self.server.vectors_here)
        if kept and self.history:
            exchange = self._round.exchange
            notes = [exchange.note(client, FORGET, FORGET_SECONDS) for client in exchange.nodes]
            for _ in deliver(grid, notes, FORGET_SECONDS):
                pass
