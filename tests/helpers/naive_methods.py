"""Every method transcribed from its paper in the plainest way: loops over clients and steps, autograd, no Plan.

Nothing here comes from fedmim.algorithms. The minibatches and the clients of a round are those of the simulator, by
its keyed randomness, so that the two can be compared number by number.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import fedmim
from fedmim.simulation.randomness import client_generator, minibatches, sample_clients

Batch = tuple[Tensor, Tensor]


class Federation:
    """What the transcriptions share: who trains when on which minibatch, the gradient, the mean."""

    def __init__(self, task: fedmim.Task, settings: fedmim.Settings) -> None:
        self.task, self.settings = task, settings
        self.population = len(task.clients)  # N
        self.weights = [len(x) if settings.weighting == "samples" else 1 for x, _ in task.clients]
        self.module = copy.deepcopy(task.model)
        self.local_models: list[dict[int, Tensor]] = []  # of each round, by client
        self.clipped: set[bool] = set()  # whether clipping struck, did not strike, or both

    def start(self) -> Tensor:
        return parameters_to_vector(self.task.model.parameters()).detach().clone()

    def active(self, t: int) -> list[int]:
        count = max(1, round(self.settings.participation * self.population))
        return sample_clients(self.settings.seed, t, self.population, count)

    def lr(self, t: int) -> float:
        return self.settings.lr * self.settings.lr_decay**t

    def batches(self, t: int, i: int) -> list[Batch]:
        x, y = self.task.clients[i]
        generator = client_generator(self.settings.seed, t, i)
        return [(x[index], y[index]) for index in minibatches(len(x), self.settings, generator)]

    def raw_gradient(self, w: Tensor, batch: Batch) -> Tensor:
        vector_to_parameters(w, self.module.parameters())
        self.module.zero_grad()
        self.task.loss(self.module(batch[0]), batch[1]).backward()
        return parameters_to_vector([p.grad for p in self.module.parameters()])

    def clip(self, g: Tensor) -> Tensor:
        limit = self.settings.clip_norm
        if limit is None:
            return g
        self.clipped.add(bool(g.norm() > limit))
        return g * min(1.0, limit / g.norm().item())

    def gradient(self, w: Tensor, batch: Batch) -> Tensor:
        """Of the loss, clipped; then weight decay at the same point."""
        return self.clip(self.raw_gradient(w, batch)) + self.settings.weight_decay * w

    def mean(self, vectors: dict[int, Tensor]) -> Tensor:
        total = sum(self.weights[i] for i in vectors)
        return sum(self.weights[i] * vector for i, vector in vectors.items()) / total

    def over_all(self, vectors: dict[int, Tensor]) -> Tensor:
        """The sum over the active clients, divided by the weight of all N clients (for equal weights: by N)."""
        return sum(self.weights[i] * vector for i, vector in vectors.items()) / sum(self.weights)


def local_sgd(
    fed: Federation, t: int, x: Tensor, direction: Callable[[int, Tensor, Batch], Tensor]
) -> dict[int, Tensor]:
    """Each active client's model after its steps w <- w - eta * direction(i, w, batch)."""
    models = {}
    for i in fed.active(t):
        w = x.clone()
        for batch in fed.batches(t, i):
            w = w - fed.lr(t) * direction(i, w, batch)
        models[i] = w
    fed.local_models.append(models)
    return models


def fedavg(fed: Federation, server_lr: float = 1.0) -> list[Tensor]:
    xs = [fed.start()]
    for t in range(fed.settings.rounds):
        x = xs[-1]
        mean = fed.mean(local_sgd(fed, t, x, lambda i, w, batch: fed.gradient(w, batch)))
        xs.append(x + server_lr * (mean - x))
    return xs


def fedmim_algorithm_1(
    fed: Federation, alpha: tuple[float, ...], beta: tuple[float, ...], server_lr: float = 1.0
) -> list[Tensor]:
    """FedMIM as printed: past models kept, y1 and y2 kept apart, K the client's own."""
    xs = [fed.start()]

    def past(t: int) -> Tensor:
        return xs[max(t, 0)]  # no increments before the first round

    for t in range(fed.settings.rounds):
        models = {}
        for i in fed.active(t):
            batches = fed.batches(t, i)
            steps = len(batches)

            def delta(s: int, steps: int = steps) -> Tensor:
                return -(past(s) - past(s - 1)) / steps

            x = xs[t].clone()
            for batch in batches:
                y1, y2 = x.clone(), x.clone()
                for j, weight in enumerate(alpha):
                    y1 = y1 - weight * delta(t - j)
                for j, weight in enumerate(beta):
                    y2 = y2 - weight * delta(t - j)
                x = y1 - (1 - sum(alpha)) * fed.lr(t) * fed.gradient(y2, batch)
            models[i] = x
        fed.local_models.append(models)
        xs.append(xs[t] + server_lr * (fed.mean(models) - xs[t]))
    return xs


def fedadam(fed: Federation, b1: float, b2: float, tau: float, server_lr: float = 0.1) -> list[Tensor]:
    xs = [fed.start()]
    m, v = torch.zeros_like(xs[0]), torch.zeros_like(xs[0])
    for t in range(fed.settings.rounds):
        x = xs[-1]
        change = fed.mean(local_sgd(fed, t, x, lambda i, w, batch: fed.gradient(w, batch))) - x
        m = b1 * m + (1 - b1) * change
        v = b2 * v + (1 - b2) * change * change
        xs.append(x + server_lr * m / (v.sqrt() + tau))
    return xs


def scaffold(fed: Federation, server_lr: float = 1.0) -> list[Tensor]:
    """Option II; c_i of all N clients and c start at zero."""
    xs = [fed.start()]
    c = torch.zeros_like(xs[0])
    own = [torch.zeros_like(c) for _ in range(fed.population)]
    for t in range(fed.settings.rounds):
        x = xs[-1]
        models = local_sgd(fed, t, x, lambda i, w, batch, c=c: fed.gradient(w, batch) - own[i] + c)
        changes = {}
        for i, w in models.items():
            steps = len(fed.batches(t, i))
            new = own[i] - c + (x - w) / (steps * fed.lr(t))
            changes[i] = new - own[i]
            own[i] = new
        xs.append(x + server_lr * (fed.mean(models) - x))
        c = c + fed.over_all(changes)
    return xs


def fedcm(fed: Federation, a: float, server_lr: float = 1.0) -> list[Tensor]:
    xs = [fed.start()]
    direction = torch.zeros_like(xs[0])
    for t in range(fed.settings.rounds):
        x = xs[-1]
        steps = {i: len(fed.batches(t, i)) for i in fed.active(t)}

        def mixed(i: int, w: Tensor, batch: Batch, d: Tensor = direction, steps: dict = steps) -> Tensor:
            return a * fed.gradient(w, batch) + (1 - a) * d / steps[i]

        mean = fed.mean(local_sgd(fed, t, x, mixed))
        direction = (x - mean) / fed.lr(t)
        xs.append(x + server_lr * (mean - x))
    return xs


def feddyn(fed: Federation, a: float) -> list[Tensor]:
    xs = [fed.start()]
    h = torch.zeros_like(xs[0])
    own = [torch.zeros_like(h) for _ in range(fed.population)]
    for t in range(fed.settings.rounds):
        x = xs[-1]
        models = local_sgd(fed, t, x, lambda i, w, batch, x=x: fed.gradient(w, batch) - own[i] + a * (w - x))
        for i, w in models.items():
            own[i] = own[i] - a * (w - x)
        h = h - a * fed.over_all({i: w - x for i, w in models.items()})
        xs.append(fed.mean(models) - h / a)
    return xs


def fedsam(fed: Federation, radius: float, server_lr: float = 1.0) -> list[Tensor]:
    """Perturbed by the raw gradient; the second gradient is clipped; weight decay at the iterate itself."""
    xs = [fed.start()]

    def sharp(i: int, w: Tensor, batch: Batch) -> Tensor:
        g = fed.raw_gradient(w, batch)
        there = fed.raw_gradient(w + radius * g / g.norm(), batch)
        return fed.clip(there) + fed.settings.weight_decay * w

    for t in range(fed.settings.rounds):
        x = xs[-1]
        xs.append(x + server_lr * (fed.mean(local_sgd(fed, t, x, sharp)) - x))
    return xs


def fedprox(fed: Federation, mu: float, server_lr: float = 1.0) -> list[Tensor]:
    """The gradient of f_i(w) + mu/2 ||w - x_t||^2."""
    xs = [fed.start()]
    for t in range(fed.settings.rounds):
        x = xs[-1]
        models = local_sgd(fed, t, x, lambda i, w, batch, x=x: fed.gradient(w, batch) + mu * (w - x))
        xs.append(x + server_lr * (fed.mean(models) - x))
    return xs


def fedavgm(fed: Federation, momentum: float, server_lr: float = 1.0) -> list[Tensor]:
    xs = [fed.start()]
    v = torch.zeros_like(xs[0])
    for t in range(fed.settings.rounds):
        x = xs[-1]
        v = momentum * v + (x - fed.mean(local_sgd(fed, t, x, lambda i, w, batch: fed.gradient(w, batch))))
        xs.append(x - server_lr * v)
    return xs
