"""The round loop of all methods and engines: sample clients, broadcast, train, average, update."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedmim.algorithms import Algorithm, ServerState
from fedmim.algorithms.compression import is_compressed
from fedmim.display import html_table
from fedmim.divergence import STALLED_ROUNDS, divergence, stalled_rounds
from fedmim.errors import check_type, warn_user
from fedmim.models import FlatModel
from fedmim.signals import held, raise_swallowed
from fedmim.simulation.callbacks import Callback, RunInfo, telling
from fedmim.simulation.client_state import BUDGET
from fedmim.simulation.engines import STACK_ELEMENTS, check_device, choose, serial_seconds, summing
from fedmim.simulation.evaluation import evaluate
from fedmim.simulation.fit import check_fit
from fedmim.simulation.ledger import bytes_down
from fedmim.simulation.participation import asked_clients, turnout, usual_steps
from fedmim.simulation.per_client import ClientEvaluation, ClientScores, DataKind
from fedmim.simulation.privacy import check_delta
from fedmim.simulation.progress import showing_rounds
from fedmim.simulation.record import Record
from fedmim.simulation.references import as_trained, check_own_models, evaluate_own_models
from fedmim.simulation.robust import check_uploads
from fedmim.simulation.server import Aggregation, ClosedRound, Server
from fedmim.simulation.settings import Execution, Settings, check_replies
from fedmim.simulation.stopping import Stopping, check_metric
from fedmim.simulation.task import METHOD, Task, check_arguments
from fedmim.simulation.training import Work, one_thread
from fedmim.simulation.wire import Wire

COPIES = 16  # vectors of the size of the model that a server holds at once, at most: state, mean, checkpoint, ...
STACK_COPIES = 6  # the same for the clients that are trained together


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run. It prints as a summary, in notebooks as a table."""

    params: Tensor
    """The global model as a flat vector."""
    model: nn.Module
    """The global model as a module, in evaluation mode."""
    history: list[Record]
    """One record per round."""
    client_scores: list[ClientScores] = field(default_factory=list)
    """With `per_client`, one entry per evaluation: `round`, and for each client the metric of the global `model`
    and, if it is evaluated, of its `personal` model."""

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name} {value}' for name, value in self._summary().items())})"

    def _repr_html_(self) -> str:
        summary = self._summary()
        return html_table(list(summary), [list(summary.values())])

    def _summary(self) -> dict[str, str]:
        """Rounds, the last and best accuracy (without accuracies the last and lowest test loss), and the time."""
        accuracies = [each.test_accuracy for each in self.history if each.test_accuracy is not None]
        losses = [each.test_loss for each in self.history if each.test_loss is not None]
        found = {"rounds": f"{len(self.history)}"}
        if accuracies:
            found |= {"accuracy": f"{100 * accuracies[-1]:.2f} %", "best": f"{100 * max(accuracies):.2f} %"}
        elif losses:
            found |= {"test loss": f"{losses[-1]:.4g}", "lowest": f"{min(losses):.4g}"}
        return found | {"seconds": f"{sum(each.seconds for each in self.history):.1f}"}


def simulate(
    algorithm: Algorithm,
    task: Task,
    settings: Settings | None = None,
    execution: Execution | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Result:
    """Run all rounds of a method on a task.

    Without `settings` and `execution`, the defaults of `Settings` and `Execution` apply. The functions of `callbacks`
    are called after each round. On a terminal and in a notebook, one line shows the progress of a run that takes more
    than two seconds; `progress=False` turns it off.

    The history is shorter if the run stops early: with `Settings(until=..., patience=...)`, or with a warning if it has
    diverged and has `Execution(on_divergence="stop")`.
    """
    run = Rounds(algorithm, task, settings, execution)
    history, scores = [], list[ClientScores]()
    line = showing_rounds(run.name, run.settings.rounds) if progress else nullcontext(lambda record, stopped: None)
    about = RunInfo.of(algorithm.title, algorithm, asdict(settings or Settings()))
    with line as show, telling(callbacks, about) as tell:
        for record in run:
            history.append(record)
            show(record, run.stopping.reason)
            if run.client_scores is not None:
                scores.append(run.client_scores)
            tell(record, lambda: run.model)
            recent = [vars(each) for each in history[-STALLED_ROUNDS:]]
            if run.stops and stalled_rounds(recent) == STALLED_ROUNDS:
                warn_user(f"{run.name}: {divergence(recent)}")
                break
    return Result(run.params, run.model, history, scores)


class Rounds(Iterator[Record]):
    """An iterator over the rounds of a run: it trains one round at a time and yields its `Record`.

    Between two rounds, `params` and `model` are the current global model. With `folder`, `save()` writes a checkpoint
    there, and `resume=True` continues from it, bit for bit. A resumed run does not know its earlier evaluations: if the
    settings stop it early (`until`, `patience`), pass each of them to `run.stopping.see(round, test_accuracy)`.

    `label` is the name of the run in warnings; default: the method. `facts` are further values to store in the
    checkpoint, which must be the same when it is resumed. `noise_seed` is the secret seed of differential privacy;
    default: the seed of the settings, which is only for simulations.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        task: Task,
        settings: Settings | None = None,
        execution: Execution | None = None,
        *,
        folder: Path | str | None = None,
        resume: bool = False,
        facts: dict[str, Any] | None = None,
        label: str | None = None,
        noise_seed: int | None = None,
    ) -> None:
        check_type("algorithm", algorithm, Algorithm, METHOD)
        check_arguments(task, settings, execution)
        settings, execution = settings or Settings(), execution or Execution()
        self.name = f"{label or algorithm.title}, seed {settings.seed}"
        self.stops = execution.on_divergence == "stop"
        given = task, settings
        task, settings = as_trained(algorithm, task, settings)
        self.algorithm, self.task, self.settings = algorithm, task, settings
        self._flat = FlatModel(task.model, task.loss, check_device(execution.device))
        check_own_models(algorithm, self._flat)
        check_fit(self._flat, task)
        population = len(task.clients)
        if algorithm.client_slots or is_compressed(
            algorithm
        ):  # other methods may record their gradients, and a trial would be among them
            Wire.of(algorithm, self._flat.params)  # checks the sizes of the vectors
        check_replies(settings, population)
        check_delta(settings, population)
        check_uploads(settings, population, self._flat.params)
        place = Path(folder) if folder else None
        self.server = Server(algorithm, settings, self._flat, place, facts=facts, noise_seed=noise_seed)
        self.stopping = Stopping(settings)
        if settings.stops_early:
            check_metric(settings, evaluate(self._flat, task, self.params, self.server.buffers)[1])
        if resume:
            self.server.restore()
        engine, self._execute = choose(algorithm, task, settings, execution, self._flat)
        self.engine: str = engine
        self._sum = None if settings.needs_uploads else summing(self._execute)
        self._clients: ClientEvaluation | None = None
        if execution.per_client != "off":
            chosen = replace(execution, engine=engine)
            self._clients = ClientEvaluation(algorithm, *given, chosen, self._flat)
        self.client_scores: ClientScores | None = None  # of the last round, if it was evaluated with `per_client`
        self._usual_steps = usual_steps(settings, task)
        by_samples = settings.weighting == "samples"
        self.record: Record | None = None  # of the last round
        self._total_weight = sum(map(task.size, range(population))) if by_samples else population

    def __next__(self) -> Record:
        if self.state.round >= self.settings.rounds or self.stopping.reason:
            raise StopIteration
        raise_swallowed()
        begin = time.perf_counter()
        try:
            with one_thread(), torch.random.fork_rng():
                closed = self._round()
            record, scores = closed.record, None
            if record.round % self.settings.eval_every == 0 or record.round == self.settings.rounds:
                loss, accuracy = self._evaluate(closed)
                record = replace(record, test_loss=loss, test_accuracy=accuracy)
                if self._clients:
                    scores = self._clients(closed, self.server.clients)
                    record = scores.summarised(record)
            with held():
                self.server.commit(closed)
                self.stopping.see(record.round, record.test_accuracy)
                self.record = replace(record, seconds=time.perf_counter() - begin)
                self.client_scores = scores
        except BaseException:
            with held():
                self.server.rollback()  # an interrupted round changes nothing
            raise
        return self.record

    def _evaluate(self, closed: ClosedRound) -> tuple[float | None, float | None]:
        """Loss and metric on the test data after a round."""
        params = self.algorithm.output(closed.state)
        if self.algorithm.own_models:
            return evaluate_own_models(self._flat, self.task, params, self.server.clients, closed.replied)
        return evaluate(self._flat, self.task, params, closed.buffers)

    def _round(self) -> ClosedRound:
        """Compute one round from the current state; `commit` makes it current."""
        server, task, settings = self.server, self.task, self.settings
        t, population = server.state.round, len(task.clients)
        sizes = {client: task.size(client) for client in asked_clients(settings, server.noise_seed, t, population)}
        came = turnout(settings, t, sizes, self._usual_steps)
        order = list(came.steps)  # longest first
        down = self.algorithm.broadcast(server.state)
        clients = server.clients
        work = Work(
            *(task, settings, t, settings.lr_at(t), order, down, server.buffers, clients.get, clients.is_new),
            steps=came.steps,
        )
        aggregation, buffers, up = Aggregation(server, down), self._flat.buffer_bytes, 0
        if order and self._sum:
            mean, outcomes = self._sum.aggregate(self.algorithm, work, aggregation.reference, sizes, clients)
            up = sum(each.bytes_up for each in outcomes)
            aggregation.take_sums(mean, outcomes, sizes)
        else:
            for reply in self._execute(self.algorithm, self._flat, work) if order else ():
                up += self.algorithm.upload_bytes(reply.upload) + buffers
                aggregation.take(reply, sizes[reply.client])
        down_bytes = bytes_down(server.past, t, list(sizes), population, self.algorithm.send(down, 1.0), buffers)
        closed = aggregation.close(self._total_weight, list(sizes), up, down_bytes)
        if aggregation.accepted < settings.min_replies and settings.dp_noise is None:
            why = self._why_unchanged(aggregation.accepted, len(sizes), len(order))
            warn_user(f"{self.name}: round {t + 1}: {why}; the model is unchanged")
        steps = None if settings.full_turnout else came.steps_mean
        record = replace(closed.record, failed=came.missing, simulated_time=came.time, steps_mean=steps)
        if self.algorithm.reference:
            record = replace(record, bytes_up=0, bytes_down=0, consistency=None)
        return replace(closed, record=record)

    def _why_unchanged(self, accepted: int, asked: int, replied: int) -> str:
        if accepted:
            return f"only {accepted} of {asked} uploads were accepted, fewer than min_replies"
        if not asked:
            return "no client is available"
        return "every upload was rejected" if replied else "no client replied"

    @property
    def state(self) -> ServerState:
        """The server's current state; `.round` is the number of finished rounds."""
        return self.server.state

    @property
    def params(self) -> Tensor:
        """The current global model, (d,)."""
        return self.algorithm.output(self.state)

    @property
    def model(self) -> nn.Module:
        """A copy of the current global model as a module, in evaluation mode."""
        return self._flat.module_at(self.params, self.server.buffers)

    @property
    def evaluated_on(self) -> DataKind | None:
        """Which data of the clients `per_client` evaluates on; None: it is off."""
        return self._clients.evaluated_on if self._clients else None

    def serial_seconds(self) -> float:
        """The estimated time of the serial engine for all rounds."""
        return serial_seconds(self.algorithm, self.settings, self.task, self._flat)

    def memory(self) -> int:
        """The estimated memory of the run in bytes, without the data and the activations of the model."""
        population, vector = len(self.task.clients), self.params.nbytes
        active = self.settings.active(population)
        stack = min(active * vector, STACK_ELEMENTS * self.params.itemsize) if self.engine == "vectorised" else vector
        uploads = active * vector if self.settings.holds_uploads else 0
        states = min(BUDGET, population * sum(each.nbytes for each in self.server.clients.zeros.values()))
        return COPIES * vector + STACK_COPIES * stack + uploads + states

    def save(self) -> None:
        """Write a checkpoint to the run's folder, atomically."""
        self.server.save()


rounds = Rounds
"""`Rounds`, for loops: `for record in rounds(...)`."""
