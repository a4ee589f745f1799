"""Estimate L, sigma, G, B, C and the other constants of a task at points along a run.

The constants are valid only along the measured run. docs/theory.md has a table of the estimators.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from fedmim.algorithms import FedMIM
from fedmim.errors import UserError
from fedmim.models.calling import call
from fedmim.simulation.loop import rounds as run_rounds
from fedmim.simulation.participation import check_real_clients
from fedmim.simulation.settings import Execution, Settings
from fedmim.simulation.task import Task
from fedmim.simulation.training import one_thread
from fedmim.structure import Structure, each, length, split
from fedmim.theory.constants import FederationShape, Inertia, ProblemConstants, auxiliary_sequence
from fedmim.theory.response import ITERATIONS, largest_response

OnProgress = Callable[[str], object]  # called with a description of the current work
SAMPLES_AT_ONCE = 512


@dataclass(frozen=True)
class MeasuredPoint:
    """The measurements at the global model after some rounds."""

    round: int
    value: float  # f
    gradient: float  # ||grad f||^2
    local_gradients: float  # (1/N) sum ||grad f_i||^2
    noise: float  # E||g - grad f_i||^2 over the minibatches of an epoch, mean over clients
    sharpness: float  # largest |eigenvalue| of any client's Hessian
    response: float  # largest part of a displacement that a round of local training takes back


@dataclass(frozen=True)
class MeasuredConstants:
    """The constants of a task along a run."""

    points: tuple[MeasuredPoint, ...]
    C: float  # largest ||(1/SK) sum g||^2 of all rounds, from u_t - u_{t+1} (Lemma 5)
    drift: float  # ||mean_i H_i grad f_i|| at the last point
    federation: FederationShape
    lr: float  # the learning rate of the run

    @property
    def L(self) -> float:  # noqa: N802
        """The largest curvature over clients and points; the true L, a supremum over the whole space, is no smaller."""
        return max(point.sharpness for point in self.points)

    @property
    def sigma(self) -> float:
        """The largest noise over points; each is a mean over clients, which is enough for the proof."""
        return sqrt(max(point.noise for point in self.points))

    @property
    def lowest(self) -> float:
        """f*: 0, a lower bound of the usual losses, or the lowest measured value if it is below 0."""
        return min(0.0, *(point.value for point in self.points))

    @property
    def gap(self) -> float:
        """f(x_0) - f*."""
        return self.points[0].value - self.lowest

    @property
    def mu(self) -> float | None:
        """The PL constant, the smallest ||grad f||^2 / (2 (f - f*)) over points; None if a point is at f*."""
        above = [(point.gradient, point.value - self.lowest) for point in self.points]
        return min(square / (2 * height) for square, height in above) if all(h > 0 for _, h in above) else None

    def heterogeneity(self, b: float) -> float:
        """The smallest G that satisfies the assumption at all points, for this B."""
        return sqrt(max(0.0, *(point.local_gradients - b**2 * point.gradient for point in self.points)))

    def choices_of_b(self) -> list[float]:
        """B = 1, the smallest B with G = 0, and all values in between at which the point that determines G changes."""
        met = [(point.gradient, point.local_gradients) for point in self.points]
        without_g = {high / low for low, high in met if low > 0}
        crossings = {(m - n) / (a - c) for a, m in met for c, n in met if a > c}
        squares = {1.0} | without_g | crossings
        return sorted(sqrt(square) for square in squares if 1 <= square <= max(without_g, default=1.0)) or [1.0]

    @property
    def response(self) -> float:
        """The largest response over points."""
        return max(point.response for point in self.points)

    def constants(self, b: float = 1.0) -> ProblemConstants:
        """The constants for the theorems, for a choice of B."""
        mu = None if not self.mu else min(self.mu, self.L)
        return ProblemConstants(self.L, self.sigma, self.heterogeneity(b), b, self.gap, self.C, mu)


def measure(
    task: Task,
    settings: Settings,
    inertia: Inertia,
    execution: Execution | None = None,
    *,
    points: int = 5,
    clients: int = 20,
    iterations: int = 20,
    on_progress: OnProgress = lambda what: None,
) -> MeasuredConstants:
    """Run FedMIM with these weights and measure at evenly spaced rounds, including the first and the last model.

    Gradients use all clients; curvature and noise, which cost more, use only `clients` of them.
    """
    if settings.weighting != "equal":
        raise UserError("weighting: the theorems weight all clients equally; use equal")
    check_real_clients(settings, "for the theorems")
    if points < 2:
        raise UserError(f"points: must be at least 2, got {points}")
    stops = {round(settings.rounds * i / (points - 1)) for i in range(points)}
    run = run_rounds(FedMIM(inertia.alpha, inertia.beta), task, settings, execution)
    measurer = _Measurer(task, settings, inertia.A, run.engine, clients, iterations, on_progress)
    recent = deque([run.params], maxlen=len(inertia.alpha) + 1)
    ahead, largest = run.params, 0.0
    found = [measurer.at(0, run.params)]
    for record in run:
        recent.append(run.params)
        before, ahead = ahead, auxiliary_sequence(list(recent), inertia.alpha)[-1]
        steps = sum(settings.steps(task.size(client)) for client in record.clients) / len(record.clients)
        largest = max(largest, float((before - ahead).double().square().sum()) / (record.lr * steps) ** 2)
        on_progress(f"round {record.round} of {settings.rounds}")
        if record.round in stops:
            found.append(measurer.at(record.round, run.params))
    population = len(task.clients)
    steps = max(settings.steps(task.size(client)) for client in range(population))
    federation = FederationShape(population, settings.active(population), steps)
    return MeasuredConstants(tuple(found), largest, measurer.drift(run.params), federation, settings.lr)


class Objective:
    """The functions f_i of a task at points w (d,): values, gradients, curvature.

    f_i is the mean loss over a client's data plus (weight_decay / 2) ||w||^2, without augmentation and with the model
    in evaluation mode, so that it is deterministic.
    """

    def __init__(self, task: Task, weight_decay: float = 0.0) -> None:
        self.task, self.weight_decay = task, weight_decay
        self.module = copy.deepcopy(task.model).eval()
        self.trained = {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def value_and_gradient(self, w: Tensor, client: int) -> tuple[float, Tensor]:
        """f_i(w) and its gradient (d,), over all of the client's data."""
        w = w.detach().requires_grad_()
        value, gradient = 0.0, torch.zeros_like(w)
        for share, x, y in self._chunks(client):
            loss = share * self._loss(w, x, y)
            gradient += torch.autograd.grad(loss, w)[0]
            value += float(loss.detach())
        w = w.detach()
        return value + self.weight_decay / 2 * float(w @ w), gradient + self.weight_decay * w

    def minibatch_gradient(self, w: Tensor, client: int, index: Tensor) -> Tensor:
        """The gradient on some of a client's samples."""
        w = w.detach().requires_grad_()
        x, y = (each(lambda part: part[index], side) for side in self.task.samples(client))
        gradient: Tensor = torch.autograd.grad(self._loss(w, x, y), w)[0]
        return gradient + self.weight_decay * w.detach()

    def curve(self, w: Tensor, client: int, direction: Tensor) -> Tensor:
        """The Hessian of f_i at w times a direction."""
        w = w.detach().requires_grad_()
        product = torch.zeros_like(w)
        for share, x, y in self._chunks(client):
            (gradient,) = torch.autograd.grad(share * self._loss(w, x, y), w, create_graph=True)
            if gradient.requires_grad:  # false if the loss is linear in w
                (part,) = torch.autograd.grad(gradient @ direction, w, materialize_grads=True)
                product += part
        return product + self.weight_decay * direction

    def sharpness(self, w: Tensor, client: int, iterations: int, generator: torch.Generator) -> float:
        """The largest |eigenvalue| of the Hessian of f_i at w by power iteration, which converges from below."""
        v = torch.randn(w.shape, generator=generator, dtype=torch.float64).to(w)
        largest = 0.0
        for _ in range(iterations):
            norm = float(v.norm())
            if norm == 0:
                break
            v = self.curve(w, client, v / norm)
            largest = float(v.norm())
        return largest

    def _chunks(self, client: int) -> Iterator[tuple[float, Structure, Structure]]:
        """The client's data in parts, each with its fraction of the samples."""
        x, y = self.task.samples(client)
        for part_x, part_y in zip(split(x, SAMPLES_AT_ONCE), split(y, SAMPLES_AT_ONCE), strict=True):
            yield length(part_y) / length(y), part_x, part_y

    def _loss(self, w: Tensor, x: Structure, y: Structure) -> Tensor:
        x = x if self.task.prepare is None else self.task.prepare(x)
        parts = w.split([p.numel() for p in self.trained.values()])
        at_w = {name: part.view_as(p) for (name, p), part in zip(self.trained.items(), parts, strict=True)}
        return self.task.loss(call(self.module, x, at_w), y)


class _Measurer:
    """Measures everything except C at a point."""

    def __init__(
        self,
        task: Task,
        settings: Settings,
        own_weight: float,
        engine: str,
        clients: int,
        iterations: int,
        on_progress: OnProgress,
    ) -> None:
        self.task, self.settings, self.iterations, self.on_progress = task, settings, iterations, on_progress
        self.own_weight, self.engine = own_weight, engine
        self.objective = Objective(task, settings.weight_decay)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.some = torch.randperm(len(task.clients), generator=self.generator)[:clients].tolist()

    @one_thread()
    def at(self, round: int, w: Tensor) -> MeasuredPoint:
        """Measure at w, the model after a round."""
        value, squares, mean = 0.0, 0.0, torch.zeros_like(w, dtype=torch.float64)
        population = len(self.task.clients)
        own: dict[int, Tensor] = {}
        for client in range(population):
            self.on_progress(f"gradients after round {round}: client {client + 1} of {population}")
            f_i, g = self.objective.value_and_gradient(w, client)
            value += f_i / population
            squares += float(g.double().square().sum()) / population
            mean += g / population
            if client in self.some:
                own[client] = g
        noise, sharpness = 0.0, 0.0
        for number, client in enumerate(self.some, start=1):
            self.on_progress(f"noise and curvature after round {round}: client {number} of {len(self.some)}")
            noise += self._noise(w, client, own[client]) / len(self.some)
            sharpness = max(sharpness, self.objective.sharpness(w, client, self.iterations, self.generator))
        response = largest_response(
            *(self.task, self.settings, w, self.some, self.own_weight * self.settings.lr_at(round), self.engine),
            lambda number: self.on_progress(f"response after round {round}: {number} of {ITERATIONS}"),
        )
        return MeasuredPoint(round, value, float(mean.square().sum()), squares, noise, sharpness, response)

    def _noise(self, w: Tensor, client: int, full: Tensor) -> float:
        """E||g - grad f_i||^2 over the minibatches of an epoch."""
        samples, batch = self.task.size(client), self.settings.batch_size
        if batch is None or batch >= samples:
            return 0.0
        parts: Sequence[Tensor] = torch.randperm(samples, generator=self.generator).split(batch)
        parts = parts[: self.settings.batches(samples)]
        apart = [self.objective.minibatch_gradient(w, client, part) - full for part in parts]
        return sum(float(each.double().square().sum()) for each in apart) / len(parts)

    @one_thread()
    def drift(self, w: Tensor) -> float:
        """||mean_i H_i grad f_i|| over the clients whose curvature is measured."""
        total = torch.zeros_like(w, dtype=torch.float64)
        for client in self.some:
            total += self.objective.curve(w, client, self.objective.value_and_gradient(w, client)[1])
        return float(total.norm()) / len(self.some)
