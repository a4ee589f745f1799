"""The response of a task: how much of a displacement of the global model one round takes back.

A round of local SGD moves the model from w to w + m(w), the mean of the local models. The response is the linear map
-dm/dw. On quadratics its eigenvalues are the q of `fedmim.theory.look_ahead`. The largest one is estimated by Arnoldi's
method with differences of m: simulated rounds from two points, with the same clients, minibatches and augmentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedmim.algorithms import FedAvg
from fedmim.models import FlatModel
from fedmim.simulation.loop import Rounds
from fedmim.simulation.settings import Execution, Settings
from fedmim.simulation.task import Task

ITERATIONS = 10  # at most; the estimate converges from below
NOTHING_LEFT = 1e-6  # below it, the vectors so far already span what the response does


def largest_response(
    task: Task,
    settings: Settings,
    w: Tensor,
    clients: Sequence[int],
    lr: float,
    engine: str = "serial",
    on_iteration: Callable[[int], object] = lambda number: None,
) -> float:
    """The largest response at w for these clients, with learning rate lr for the local steps (A eta with inertia).

    The displacement is as long as m(w), so that the curvature is that of the region in which the rounds move.
    """
    move = _mean_change(task, settings, clients, lr, engine)
    start = move(w)
    length = float(start.norm())
    if length == 0:
        return 0.0
    first = torch.randn(w.shape, generator=torch.Generator().manual_seed(settings.seed), dtype=torch.float64)
    basis, projected = [first / first.norm()], torch.zeros(ITERATIONS + 1, ITERATIONS, dtype=torch.float64)
    for k in range(ITERATIONS):
        image = (start - move(w + length * basis[k].to(w))) / length
        on_iteration(k + 1)
        for j, vector in enumerate(basis):
            projected[j, k] = image @ vector
            image -= projected[j, k] * vector
        left = float(image.norm())
        if left < NOTHING_LEFT * float(projected[: k + 1, k].norm()):
            break
        projected[k + 1, k] = left
        basis.append(image / left)
    return float(torch.linalg.eigvals(projected[: k + 1, : k + 1]).abs().max())


def _mean_change(
    task: Task, settings: Settings, clients: Sequence[int], lr: float, engine: str
) -> Callable[[Tensor], Tensor]:
    """The function m, in float64."""
    own = replace(task, clients=[task.clients[client] for client in clients], client_tests=None, names=None)
    flat = FlatModel(task.model, task.loss)
    local = ("local_epochs", "local_steps", "batch_size", "drop_last", "weight_decay", "clip_norm", "seed")
    same = {name: getattr(settings, name) for name in local}
    # Of two rounds, the first is not evaluated.
    once = Settings(rounds=2, eval_every=2, participation=1.0, lr=lr, lr_decay=1.0, **same)
    execution = Execution(engine="vectorised" if engine == "vectorised" else "serial")

    def move(w: Tensor) -> Tensor:
        start = replace(own, model=flat.module_at(w.clone(), flat.buffers))
        run = Rounds(FedAvg(), start, once, execution)
        next(run)
        return run.params.double() - w.double()

    return move
