"""Small federated problems made of tensors alone: unequal clients, and quadratics whose optimum is known."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

import fedmim

# Unequal clients: with batches of 4 they take 1 to 4 steps an epoch, and most end with a smaller batch.
SIZES = (3, 8, 5, 13, 1, 6, 10)

# Every part of a local step at work: minibatches, weight decay, clipping of some gradients, a falling learning rate.
BUSY = {
    "rounds": 5,
    "participation": 0.6,  # 4 of 7
    "local_epochs": 2,
    "batch_size": 4,
    "lr": 0.3,
    "lr_decay": 0.9,
    "weight_decay": 0.05,
    "clip_norm": 0.8,
}


EXECUTION = {field.name for field in fields(fedmim.Execution)}


def protocol(**flat) -> tuple[fedmim.Settings, fedmim.Execution]:
    """Settings and execution from one set of values, for `fedmim.rounds(algorithm, task, *protocol(...))`."""
    execution = {name: value for name, value in flat.items() if name in EXECUTION}
    return fedmim.Settings(**{k: v for k, v in flat.items() if k not in EXECUTION}), fedmim.Execution(**execution)


def busy(**overrides) -> tuple[fedmim.Settings, fedmim.Execution]:
    """The protocol of BUSY, changed in these values."""
    return protocol(**BUSY | overrides)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(dtype: torch.dtype = torch.float64, features: int = 4, classes: int = 3) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(features, 5), nn.Tanh(), nn.Linear(5, classes)).to(dtype)


def samples(n: int, client: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Client data of 4 features and 3 classes; clients differ in where their features lie."""
    generator = seeded(100 + client)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64) + 0.5 * (client % 3 - 1)
    return x.to(dtype), torch.randint(3, (n,), generator=generator)


def classification(
    sizes: tuple[int, ...] = SIZES, dtype: torch.dtype = torch.float64, model: nn.Module | None = None, **options
) -> fedmim.Task:
    return fedmim.Task(
        model=model or network(dtype),
        clients=[samples(n, client, dtype) for client, n in enumerate(sizes)],
        test=samples(20, 99, dtype),
        **options,
    )


class Quadratic(nn.Module):
    """f(w) = 1/2 (w - b)' H (w - b) for each sample (H, b), packed as (d, d + 1); the loss is the mean of outputs."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        curvature, optimum = x[..., :-1], x[..., -1]
        apart = self.w - optimum
        return 0.5 * (apart * torch.einsum("nij,nj->ni", curvature, apart)).sum(-1)


def slow_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The default loss, slow enough that something can happen in the middle of a round."""
    time.sleep(0.01)
    return nn.functional.cross_entropy(outputs, targets)


def mean_of_outputs(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.mean()


@dataclass(frozen=True)
class Quadratics:
    """Clients with curvature H_i and optimum b_i of their own."""

    curvatures: Tensor  # (N, d, d)
    optima: Tensor  # (N, d)

    @classmethod
    def draw(cls, clients: int = 10, dimension: int = 3, seed: int = 0) -> Quadratics:
        generator = seeded(seed)
        factor = torch.randn(clients, dimension, dimension, generator=generator, dtype=torch.float64)
        basis = torch.linalg.qr(factor).Q
        values = 0.5 + 1.5 * torch.rand(clients, 1, dimension, generator=generator, dtype=torch.float64)
        optima = 2 * torch.randn(clients, dimension, generator=generator, dtype=torch.float64)
        return cls(basis * values @ basis.mT, optima)

    @property
    def optimum(self) -> Tensor:
        """Of the mean of all f_i: (sum H_i)^-1 sum H_i b_i."""
        pulls = torch.einsum("nij,nj->i", self.curvatures, self.optima)
        return torch.linalg.solve(self.curvatures.sum(0), pulls)

    def task(self) -> fedmim.Task:
        packed = torch.cat([self.curvatures, self.optima.unsqueeze(-1)], dim=-1)
        return fedmim.Task(
            model=Quadratic(torch.zeros_like(self.optima[0])),
            clients=[(one.unsqueeze(0), torch.zeros(1)) for one in packed],
            test=(packed[:1], torch.zeros(1)),
            loss=mean_of_outputs,
        )


def quadratic_protocol(**overrides) -> tuple[fedmim.Settings, fedmim.Execution]:
    """Full batches, constant learning rate, neither weight decay nor clipping."""
    plain = {
        "local_steps": 5,
        "batch_size": None,
        "lr": 0.1,
        "lr_decay": 1.0,
        "weight_decay": 0.0,
        "clip_norm": None,
        "engine": "vectorised",
        "eval_every": 10**6,
    }
    return protocol(**plain | overrides)
