"""Simulated runs on synthetic problems that record every model and optionally every gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, FedMIM, Local, Vectors, Wrapper
from fedmim.simulation.loop import rounds as run_rounds
from fedmim.simulation.settings import Execution, Settings
from fedmim.theory.constants import FederationShape, Inertia, auxiliary_sequence, largest_lr
from fedmim.theory.synthetic import SyntheticProblem

OnRound = Callable[[], object]  # called after each round, for progress
OnStart = Callable[[int], OnRound]  # called with the total number of rounds of all runs


@dataclass(frozen=True)
class RecordingMethod(Wrapper):
    """A method that also records each gradient, the point where it is taken, and the clients' local models.

    For the vectorised engine, which takes the gradients of all clients of a round at once.
    """

    points: list[Tensor] = field(default_factory=list, compare=False)  # (S, d) for each step
    taken: list[Tensor] = field(default_factory=list, compare=False)  # (S, d) for each step
    uploads: list[Tensor] = field(default_factory=list, compare=False)  # (d,) for each client and round
    local_models: list[Tensor] = field(default_factory=list, compare=False)  # (d,) for each client and round

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """Compute and record the gradient."""
        g = super().gradient(w, local)
        if w.dim() == 2:  # not the trial step before the first round
            self.points.append(w.clone())
            self.taken.append(g.clone())
        return g

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """Record the upload and the local model that the server makes of it."""
        received = super().receive(upload, down, lr, steps)
        self.uploads.append(upload["params"].clone())
        self.local_models.append(received["params"].clone())
        return received


@dataclass(frozen=True)
class SyntheticRun:
    """A run of FedMIM at a constant learning rate: its settings and records."""

    problem: SyntheticProblem
    federation: FederationShape
    inertia: Inertia
    lr: float
    models: Tensor  # x_0 .. x_T, (T + 1, d)
    clients: list[tuple[int, ...]]  # clients of each round
    points: Tensor | None = None  # y, where gradients were taken, (T, K, S, d)
    taken: Tensor | None = None  # g, the stochastic gradients, (T, K, S, d)

    @cached_property
    def auxiliary(self) -> Tensor:
        """u_0 .. u_T, (T + 1, d)."""
        return torch.stack(auxiliary_sequence(list(self.models), self.inertia.alpha))

    @cached_property
    def at_u(self) -> Tensor:
        """||grad f(u_t)||^2 for each round t, (T,)."""
        return self.problem.squared_gradient(self.auxiliary[:-1])

    @cached_property
    def at_x(self) -> Tensor:
        """||grad f(x_t)||^2 for each round t, (T,)."""
        return self.problem.squared_gradient(self.models[:-1])

    @property
    def mean_error(self) -> float:
        """The mean over rounds of ||grad f(u_t)||^2."""
        return float(self.at_u.mean())

    @property
    def gradients_taken(self) -> int:
        """S K T."""
        return self.federation.active * self.federation.steps * len(self.clients)

    @property
    def admissible(self) -> bool:
        """Whether the theorems allow the learning rate."""
        return self.lr < largest_lr(self.problem.constants(), self.federation, self.inertia)

    @property
    def gradient_bound(self) -> float:
        """The measured C: the largest ||(1/SK) sum_i sum_k g||^2 of all rounds, computed from u_0 .. u_T (Lemma 5)."""
        means = (self.auxiliary[:-1] - self.auxiliary[1:]) / (self.lr * self.federation.steps)
        return float(means.square().sum(1).max())


def run_fedmim(
    problem: SyntheticProblem,
    federation: FederationShape,
    inertia: Inertia,
    lr: float,
    rounds: int,
    seed: int = 0,
    *,
    record: bool = False,
    on_round: OnRound = lambda: None,
) -> SyntheticRun:
    """Run FedMIM with these weights; FedAvg and FedCM are special cases."""
    plain = FedMIM(inertia.alpha, inertia.beta)
    method = RecordingMethod(plain) if record else plain
    models, clients = run_method(method, problem, federation, lr, rounds, seed, on_round)
    tensors = (method.points, method.taken) if isinstance(method, RecordingMethod) else ()
    recorded = (torch.stack(each).unflatten(0, (rounds, federation.steps)) for each in tensors)
    return SyntheticRun(problem, federation, inertia, lr, models, clients, *recorded)


def run_method(
    method: Algorithm,
    problem: SyntheticProblem,
    federation: FederationShape,
    lr: float,
    rounds: int,
    seed: int = 0,
    on_round: OnRound = lambda: None,
) -> tuple[Tensor, list[tuple[int, ...]]]:
    """Run any method on the problem; returns the models (T + 1, d) and the clients of each round."""
    settings = plain_settings(federation, lr, rounds, seed)
    run = run_rounds(method, problem.task(), settings, Execution(engine="vectorised"))
    models, clients = [run.params], []
    for record in run:
        models.append(run.params)
        clients.append(record.clients)
        on_round()
    return torch.stack(models), clients


def plain_settings(federation: FederationShape, lr: float, rounds: int, seed: int = 0) -> Settings:
    """Local training as in the theorems: full gradients, constant learning rate, no weight decay, no clipping."""
    return Settings(
        rounds=rounds,
        participation=federation.active / federation.clients,
        local_steps=federation.steps,
        batch_size=None,
        lr=lr,
        lr_decay=1.0,
        weight_decay=0.0,
        clip_norm=None,
        eval_every=rounds,
        seed=seed,
    )
