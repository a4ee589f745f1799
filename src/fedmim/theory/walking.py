"""A run of the simulator on a synthetic task, with every model, and where asked every gradient, noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, FedMIM, Local
from fedmim.simulation.loop import rounds as run_rounds
from fedmim.simulation.settings import Settings
from fedmim.theory.auxiliary import auxiliary_sequence
from fedmim.theory.problem import Federation, Inertia
from fedmim.theory.synthetic import Synthetic

Tell = Callable[[], object]  # called after every round, for progress


@dataclass(frozen=True)
class RecordingFedMIM(FedMIM):
    """FedMIM that notes where it takes each gradient, and what it gets."""

    points: list[Tensor] = field(default_factory=list, compare=False)
    taken: list[Tensor] = field(default_factory=list, compare=False)

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """The gradient, noted."""
        g = super().gradient(w, local)
        self.points.append(w.clone())
        self.taken.append(g.clone())
        return g


@dataclass(frozen=True)
class Walk:
    """What was seen of a run."""

    models: Tensor  # x_0 .. x_T, (T + 1, d)
    ahead: Tensor  # u_0 .. u_T, (T + 1, d)
    clients: list[tuple[int, ...]]  # who took part in each round
    points: Tensor | None = None  # y, where gradients were taken, (T, K, S, d)
    taken: Tensor | None = None  # g, the stochastic gradients, (T, K, S, d)


def walk(
    problem: Synthetic,
    federation: Federation,
    inertia: Inertia,
    lr: float,
    rounds: int,
    seed: int = 0,
    *,
    record: bool = False,
    tell: Tell = lambda: None,
) -> Walk:
    """Run FedMIM with these weights (FedAvg and FedCM are some of them) at a constant rate."""
    kind = RecordingFedMIM if record else FedMIM
    method = kind(inertia.alpha, inertia.beta)
    models, clients = walk_models(method, problem, federation, lr, rounds, seed, tell)
    ahead = torch.stack(auxiliary_sequence(list(models), inertia.alpha))
    if not isinstance(method, RecordingFedMIM):
        return Walk(models, ahead, clients)
    shape = (rounds, federation.steps)
    points, taken = (torch.stack(notes).unflatten(0, shape) for notes in (method.points, method.taken))
    return Walk(models, ahead, clients, points, taken)


def walk_models(
    method: Algorithm,
    problem: Synthetic,
    federation: Federation,
    lr: float,
    rounds: int,
    seed: int = 0,
    tell: Tell = lambda: None,
) -> tuple[Tensor, list[tuple[int, ...]]]:
    """The models (T + 1, d) of any method on the problem, and who took part in each round."""
    settings = Settings(
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
        engine="vectorised",
    )
    run = run_rounds(method, problem.task(), settings)
    models, clients = [run.params], []
    for record in run:
        models.append(run.params)
        clients.append(record.clients)
        tell()
    return torch.stack(models), clients
