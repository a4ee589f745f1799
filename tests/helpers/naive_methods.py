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


def leap(
    fed: Federation, alpha: tuple[float, ...], ahead: float = 0.0, mu: float = 0.0, server_lr: float = 1.0
) -> list[Tensor]:
    """FedProx (mu = 0: FedAvg) from x_t + (1 + ahead) D at A eta; ahead * D is taken off the new model."""
    xs = [fed.start()]
    for t in range(fed.settings.rounds):
        inertia = sum(
            (a * (xs[max(t - j, 0)] - xs[max(t - j - 1, 0)]) for j, a in enumerate(alpha)), torch.zeros_like(xs[0])
        )
        z = xs[t] + (1 + ahead) * inertia

        def slower(i: int, w: Tensor, batch: Batch, z: Tensor = z) -> Tensor:
            return (1 - sum(alpha)) * (fed.gradient(w, batch) + mu * (w - z))

        mean = fed.mean(local_sgd(fed, t, z, slower))
        xs.append(z + server_lr * (mean - z) - ahead * inertia)
    return xs


def leap_around_feddyn(fed: Federation, alpha: tuple[float, ...], a: float, ahead: float = 0.0) -> list[Tensor]:
    """The duals see the client's own part w - z alone."""
    xs = [fed.start()]
    h = torch.zeros_like(xs[0])
    own = [torch.zeros_like(h) for _ in range(fed.population)]
    for t in range(fed.settings.rounds):
        inertia = sum(
            (c * (xs[max(t - j, 0)] - xs[max(t - j - 1, 0)]) for j, c in enumerate(alpha)), torch.zeros_like(xs[0])
        )
        z = xs[t] + (1 + ahead) * inertia

        def slower(i: int, w: Tensor, batch: Batch, z: Tensor = z) -> Tensor:
            return (1 - sum(alpha)) * (fed.gradient(w, batch) - own[i] + a * (w - z))

        models = local_sgd(fed, t, z, slower)
        for i, w in models.items():
            own[i] = own[i] - a * (w - z)
        h = h - a * fed.over_all({i: w - z for i, w in models.items()})
        xs.append(fed.mean(models) - h / a - ahead * inertia)
    return xs


def sharp_gradient(fed: Federation, w: Tensor, batch: Batch, radius: float) -> Tensor:
    """The gradient at the end of the radius, clipped; weight decay at w."""
    g = fed.raw_gradient(w, batch)
    return fed.clip(fed.raw_gradient(w + radius * g / g.norm(), batch)) + fed.settings.weight_decay * w


def ghbm(fed: Federation, b: float, tau: int, server_lr: float = 1.0) -> list[Tensor]:
    """From the models themselves: the momentum is b (x_t - x_{t-tau}) / tau, spread over the client's steps."""
    xs = [fed.start()]
    for t in range(fed.settings.rounds):
        momentum = b * (xs[t] - xs[max(t - tau, 0)]) / tau
        models = {}
        for i in fed.active(t):
            w, batches = xs[t].clone(), fed.batches(t, i)
            for batch in batches:
                w = w - fed.lr(t) * fed.gradient(w, batch) + momentum / len(batches)
            models[i] = w
        fed.local_models.append(models)
        xs.append(xs[t] + server_lr * (fed.mean(models) - xs[t]))
    return xs


def fedacg(fed: Federation, momentum: float, mu: float) -> list[Tensor]:
    """As printed: m = lambda m + the mean change from v, x = x + m."""
    xs, m = [fed.start()], torch.zeros_like(fed.start())
    for t in range(fed.settings.rounds):
        v = xs[t] + momentum * m
        models = local_sgd(fed, t, v, lambda i, w, batch, v=v: fed.gradient(w, batch) + mu * (w - v))
        m = momentum * m + fed.mean({i: w - v for i, w in models.items()})
        xs.append(xs[t] + m)
    return xs


def mofedsam(fed: Federation, a: float, radius: float, server_lr: float = 1.0) -> list[Tensor]:
    xs = [fed.start()]
    direction = torch.zeros_like(xs[0])
    for t in range(fed.settings.rounds):
        x = xs[-1]
        steps = {i: len(fed.batches(t, i)) for i in fed.active(t)}

        def mixed(i: int, w: Tensor, batch: Batch, d: Tensor = direction, steps: dict = steps) -> Tensor:
            return a * sharp_gradient(fed, w, batch, radius) + (1 - a) * d / steps[i]

        mean = fed.mean(local_sgd(fed, t, x, mixed))
        direction = (x - mean) / fed.lr(t)
        xs.append(x + server_lr * (mean - x))
    return xs


def fedgamma(fed: Federation, radius: float, server_lr: float = 1.0) -> list[Tensor]:
    xs = [fed.start()]
    c = torch.zeros_like(xs[0])
    own = [torch.zeros_like(c) for _ in range(fed.population)]
    for t in range(fed.settings.rounds):
        x = xs[-1]
        models = local_sgd(fed, t, x, lambda i, w, batch, c=c: sharp_gradient(fed, w, batch, radius) - own[i] + c)
        new = {i: own[i] - c + (x - w) / (len(fed.batches(t, i)) * fed.lr(t)) for i, w in models.items()}
        changes = {i: new[i] - own[i] for i in new}
        for i in new:
            own[i] = new[i]
        xs.append(x + server_lr * (fed.mean(models) - x))
        c = c + fed.over_all(changes)
    return xs


def fedspeed(fed: Federation, lam: float, rho: float, alpha: float, server_lr: float = 1.0) -> list[Tensor]:
    """Algorithm 1 with the paper's lambda: prox 1 / lambda, and x_i - lambda * dual_i up."""
    xs = [fed.start()]
    dual = [torch.zeros_like(xs[0]) for _ in range(fed.population)]
    for t in range(fed.settings.rounds):
        x, sent = xs[-1], {}
        for i in fed.active(t):
            w = x.clone()
            for batch in fed.batches(t, i):
                g1 = fed.raw_gradient(w, batch)
                g2 = fed.raw_gradient(w + rho * g1, batch)
                g = fed.clip((1 - alpha) * g1 + alpha * g2) + fed.settings.weight_decay * w
                w = w - fed.lr(t) * (g - dual[i] + (w - x) / lam)
            dual[i] = dual[i] - (w - x) / lam
            sent[i] = w - lam * dual[i]
        fed.local_models.append(sent)
        xs.append(x + server_lr * (fed.mean(sent) - x))
    return xs


def fedsmoo(fed: Federation, beta: float, radius: float) -> list[Tensor]:
    """Algorithm 1 with the paper's beta: prox 1 / beta, and the mean of mu_i - s_i for the server's perturbation."""
    xs = [fed.start()]
    zeros = torch.zeros_like(xs[0])
    dual, mu = ([zeros.clone() for _ in range(fed.population)] for _ in range(2))
    h, s = zeros.clone(), zeros.clone()
    for t in range(fed.settings.rounds):
        x, models, perturbations = xs[-1], {}, {}
        for i in fed.active(t):
            w = x.clone()
            for batch in fed.batches(t, i):
                towards = fed.raw_gradient(w, batch) - mu[i] - s
                own = radius * towards / towards.norm()
                g = fed.clip(fed.raw_gradient(w + own, batch)) + fed.settings.weight_decay * w
                mu[i] = mu[i] + (own - s)
                w = w - fed.lr(t) * (g - dual[i] + (w - x) / beta)
            dual[i] = dual[i] - (w - x) / beta
            models[i], perturbations[i] = w, mu[i] - own
        fed.local_models.append(models)
        s = fed.mean(perturbations)
        s = radius * s / s.norm()
        h = h - fed.over_all({i: w - x for i, w in models.items()}) / beta
        xs.append(fed.mean(models) - beta * h)
    return xs


def fedlesam(fed: Federation, radius: float, server_lr: float = 1.0) -> list[Tensor]:
    """Each gradient at w + p; weight decay there, too."""
    xs, received = [fed.start()], {}
    for t in range(fed.settings.rounds):
        x = xs[-1]
        apart = {i: received.get(i, x) - x for i in fed.active(t)}
        p = {i: radius * v / v.norm() if v.any() else v for i, v in apart.items()}
        models = local_sgd(fed, t, x, lambda i, w, batch, p=p: fed.gradient(w + p[i], batch))
        received |= dict.fromkeys(models, x)
        xs.append(x + server_lr * (fed.mean(models) - x))
    return xs


def fedinit(fed: Federation, beta: float, server_lr: float = 1.0) -> list[Tensor]:
    xs, last = [fed.start()], {}
    for t in range(fed.settings.rounds):
        x, models = xs[-1], {}
        for i in fed.active(t):
            w = x + beta * (x - last[i]) if i in last else x.clone()
            for batch in fed.batches(t, i):
                w = w - fed.lr(t) * fed.gradient(w, batch)
            models[i] = w
        last |= models
        fed.local_models.append(models)
        xs.append(x + server_lr * (fed.mean(models) - x))
    return xs


def scaffold_m(fed: Federation, beta: float, server_lr: float = 1.0) -> list[Tensor]:
    """c_i is the plain mean of the gradients that the client has used."""
    xs = [fed.start()]
    c, v = torch.zeros_like(xs[0]), torch.zeros_like(xs[0])
    own = [torch.zeros_like(c) for _ in range(fed.population)]
    for t in range(fed.settings.rounds):
        x, models, new, directions = xs[-1], {}, {}, {}
        for i in fed.active(t):
            w, batches, gradients = x.clone(), fed.batches(t, i), []
            for batch in batches:
                gradients.append(fed.gradient(w, batch))
                w = w - fed.lr(t) * (beta * (gradients[-1] - own[i] + c) + (1 - beta) * v)
            models[i], new[i] = w, sum(gradients) / len(gradients)
            directions[i] = (x - w) / (len(batches) * fed.lr(t))
        fed.local_models.append(models)
        c = c + fed.over_all({i: new[i] - own[i] for i in new})
        for i in new:
            own[i] = new[i]
        v = fed.mean(directions)
        xs.append(x + server_lr * (fed.mean(models) - x))
    return xs


def fednova(fed: Federation, server_lr: float = 1.0) -> list[Tensor]:
    xs = [fed.start()]
    for t in range(fed.settings.rounds):
        x = xs[-1]
        models = local_sgd(fed, t, x, lambda i, w, batch: fed.gradient(w, batch))
        steps = {i: torch.tensor(float(len(fed.batches(t, i))), dtype=x.dtype) for i in models}
        normalised = {i: (x - w) / steps[i] for i, w in models.items()}
        xs.append(x - server_lr * fed.mean(steps) * fed.mean(normalised))
    return xs


def fedexp(fed: Federation, epsilon: float) -> list[Tensor]:
    """The evaluated models: the mean of the last two iterates."""
    xs = [fed.start()]
    for t in range(fed.settings.rounds):
        x = xs[-1]
        models = local_sgd(fed, t, x, lambda i, w, batch: fed.gradient(w, batch))
        changes = {i: x - w for i, w in models.items()}
        mean = fed.mean(changes)
        squares = fed.mean({i: d.square().sum() for i, d in changes.items()})
        rate = max(1.0, (squares / (2 * (mean.square().sum() + epsilon))).item())
        xs.append(x - rate * mean)
    return [xs[0], *((a + b) / 2 for a, b in zip(xs[1:], xs, strict=False))]


def fedyogi(fed: Federation, b1: float, b2: float, tau: float, server_lr: float = 0.1) -> list[Tensor]:
    xs = [fed.start()]
    m, v = torch.zeros_like(xs[0]), torch.zeros_like(xs[0])
    for t in range(fed.settings.rounds):
        x = xs[-1]
        change = fed.mean(local_sgd(fed, t, x, lambda i, w, batch: fed.gradient(w, batch))) - x
        m = b1 * m + (1 - b1) * change
        v = v - (1 - b2) * change * change * torch.sign(v - change * change)
        xs.append(x + server_lr * m / (v.sqrt() + tau))
    return xs


def fedadagrad(fed: Federation, b1: float, tau: float, server_lr: float = 0.1) -> list[Tensor]:
    xs = [fed.start()]
    m, v = torch.zeros_like(xs[0]), torch.zeros_like(xs[0])
    for t in range(fed.settings.rounds):
        x = xs[-1]
        change = fed.mean(local_sgd(fed, t, x, lambda i, w, batch: fed.gradient(w, batch))) - x
        m = b1 * m + (1 - b1) * change
        v = v + change * change
        xs.append(x + server_lr * m / (v.sqrt() + tau))
    return xs


def mimelite(fed: Federation, b: float, server_lr: float = 1.0) -> list[Tensor]:
    """The full gradients at x_t as a step would use them: clipped, then weight decay."""
    xs = [fed.start()]
    v = torch.zeros_like(xs[0])
    for t in range(fed.settings.rounds):
        x = xs[-1]
        models = local_sgd(fed, t, x, lambda i, w, batch, v=v: (1 - b) * fed.gradient(w, batch) + b * v)
        v = b * v + (1 - b) * fed.mean({i: fed.gradient(x, fed.task.clients[i]) for i in models})
        xs.append(x + server_lr * (fed.mean(models) - x))
    return xs
