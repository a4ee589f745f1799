"""Estimating L, sigma, G, B, C and the rest of a task, at points along a run.

| constant   | estimator                                                                                            |
|------------|------------------------------------------------------------------------------------------------------|
| L          | the largest |eigenvalue| of a client's Hessian, by power iteration with Hessian-vector products: the  |
|            | maximum over clients and points. From below: the true L is a supremum over all of space.             |
| sigma^2    | E||g - grad f_i||^2 over the minibatches of an epoch: the mean over clients, which is all that the    |
|            | proof uses, the maximum over points                                                                  |
| G, B       | (1/N) sum ||grad f_i||^2 against ||grad f||^2 at every point: for each B >= 1 the least G that covers |
|            | all points                                                                                           |
| C          | the largest ||(1/SK) sum g||^2 of all rounds, from u_t - u_{t+1} (Lemma 5)                            |
| f_0 - f*   | f* taken as 0 where f was never below, else as the lowest value seen                                 |
| mu         | the least ||grad f||^2 / (2 (f - f*)) of all points                                                  |
| drift      | ||mean_i H_i grad f_i|| at the last point: local training with steps of the rate r rests where        |
|            | ||grad f|| is about r (K-1)/2 times this                                                             |

All hold along the run that was measured, and nowhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from fedmim.algorithms import FedMIM
from fedmim.errors import UserError
from fedmim.simulation.loop import rounds as run_rounds
from fedmim.simulation.settings import Settings
from fedmim.simulation.task import Task
from fedmim.simulation.training import one_thread
from fedmim.theory.auxiliary import auxiliary_sequence
from fedmim.theory.objective import Objective
from fedmim.theory.problem import Federation, Inertia, Problem

Tell = Callable[[str], object]  # what is being done, for progress


@dataclass(frozen=True)
class Point:
    """What was measured at the global model after some rounds."""

    round: int
    value: float  # f
    gradient: float  # ||grad f||^2
    local_gradients: float  # (1/N) sum ||grad f_i||^2
    noise: float  # E||g - grad f_i||^2, the mean over clients
    sharpness: float  # the largest curvature of any client


@dataclass(frozen=True)
class Measured:
    """The constants of a task along a run."""

    points: tuple[Point, ...]
    C: float
    drift: float
    federation: Federation
    lr: float  # the rate of the run

    @property
    def L(self) -> float:  # noqa: N802
        """The largest curvature met."""
        return max(point.sharpness for point in self.points)

    @property
    def sigma(self) -> float:
        """The largest noise met."""
        return sqrt(max(point.noise for point in self.points))

    @property
    def lowest(self) -> float:
        """f*: 0, which bounds the usual losses from below, or the lowest value met where that is lower."""
        return min(0.0, *(point.value for point in self.points))

    @property
    def gap(self) -> float:
        """f(x_0) - f*."""
        return self.points[0].value - self.lowest

    @property
    def mu(self) -> float | None:
        """The PL constant that all points allow; None where one of them was at f*."""
        above = [(point.gradient, point.value - self.lowest) for point in self.points]
        return min(square / (2 * height) for square, height in above) if all(h > 0 for _, h in above) else None

    def heterogeneity(self, b: float) -> float:
        """The least G that covers all points at this B."""
        return sqrt(max(0.0, *(point.local_gradients - b**2 * point.gradient for point in self.points)))

    def choices_of_b(self) -> list[float]:
        """B = 1, the B from which on G is 0, and all between at which another point may come to decide G."""
        met = [(point.gradient, point.local_gradients) for point in self.points]
        squares = {1.0}
        squares |= {high / low for low, high in met if low > 0}
        squares |= {(m - n) / (a - c) for a, m in met for c, n in met if a > c}
        least_without_g = max((high / low for low, high in met if low > 0), default=1.0)
        return sorted(sqrt(square) for square in squares if 1 <= square <= least_without_g) or [1.0]

    def problem(self, b: float = 1.0) -> Problem:
        """The constants for the theorems, at a choice of B."""
        mu = None if not self.mu else min(self.mu, self.L)
        return Problem(self.L, self.sigma, self.heterogeneity(b), b, self.gap, self.C, mu)


def measure(
    task: Task,
    settings: Settings,
    inertia: Inertia,
    *,
    points: int = 5,
    clients: int = 20,
    iterations: int = 20,
    tell: Tell = lambda what: None,
) -> Measured:
    """Run FedMIM with these weights and measure at evenly spaced rounds, the first model and the last included.

    Gradients are taken over all clients; curvature and noise, which cost more, over `clients` of them.
    """
    if settings.weighting != "equal":
        raise UserError("weighting: the theorems weigh all clients equally; use equal")
    if points < 2:
        raise UserError(f"points: must be at least 2, got {points}")
    measurer = _Measurer(task, settings, clients, iterations, tell)
    stops = {round(settings.rounds * i / (points - 1)) for i in range(points)}
    run = run_rounds(FedMIM(inertia.alpha, inertia.beta), task, settings)
    recent = deque([run.params], maxlen=len(inertia.alpha) + 1)
    ahead, largest = run.params, 0.0
    found = [measurer.at(0, run.params)]
    for record in run:
        recent.append(run.params)
        before, ahead = ahead, auxiliary_sequence(list(recent), inertia.alpha)[-1]
        steps = sum(settings.steps(task.size(client)) for client in record.clients) / len(record.clients)
        largest = max(largest, float((before - ahead).double().square().sum()) / (record.lr * steps) ** 2)
        tell(f"round {record.round} of {settings.rounds}")
        if record.round in stops:
            found.append(measurer.at(record.round, run.params))
    population = len(task.clients)
    steps = max(settings.steps(task.size(client)) for client in range(population))
    federation = Federation(population, settings.active(population), steps)
    return Measured(tuple(found), largest, measurer.drift(run.params), federation, settings.lr)


class _Measurer:
    def __init__(self, task: Task, settings: Settings, clients: int, iterations: int, tell: Tell) -> None:
        self.task, self.settings, self.iterations, self.tell = task, settings, iterations, tell
        self.objective = Objective(task, settings.weight_decay)
        self.generator = torch.Generator().manual_seed(settings.seed)
        population = len(task.clients)
        self.some = torch.randperm(population, generator=self.generator)[:clients].tolist()

    @one_thread()
    def at(self, round: int, w: Tensor) -> Point:
        """Everything but C at one point."""
        value, squares, mean = 0.0, 0.0, torch.zeros_like(w, dtype=torch.float64)
        population = len(self.task.clients)
        own: dict[int, Tensor] = {}
        for client in range(population):
            self.tell(f"gradients after round {round}: client {client + 1} of {population}")
            f_i, g = self.objective.value_and_gradient(w, client)
            value += f_i / population
            squares += float(g.double().square().sum()) / population
            mean += g / population
            if client in self.some:
                own[client] = g
        noise, sharpness = 0.0, 0.0
        for number, client in enumerate(self.some, start=1):
            self.tell(f"noise and curvature after round {round}: client {number} of {len(self.some)}")
            noise += self._noise(w, client, own[client]) / len(self.some)
            sharpness = max(sharpness, self.objective.sharpness(w, client, self.iterations, self.generator))
        return Point(round, value, float(mean.square().sum()), squares, noise, sharpness)

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
        """||mean_i H_i grad f_i||, over the clients whose curvature is measured."""
        total = torch.zeros_like(w, dtype=torch.float64)
        for client in self.some:
            total += self.objective.curve(w, client, self.objective.value_and_gradient(w, client)[1])
        return float(total.norm()) / len(self.some)
