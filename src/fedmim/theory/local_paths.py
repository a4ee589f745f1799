"""The paths of two clients on quadratics in the plane: every local step of every round of a real run.

    f_i(x) = 1/2 (x - b_i)' H_i (x - b_i),   i = 1, 2

The clients differ in their optima b_i and in their curvatures H_i: each is steep in a direction in which the other is
flat. docs/assets/paths.html has the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm
from fedmim.theory.constants import FederationShape
from fedmim.theory.quadratics import QuadraticProblem
from fedmim.theory.synthetic_runs import OnRound, RecordingMethod, run_method


def two_clients() -> QuadraticProblem:
    """The problem of the pictures."""

    def numbers(values: list[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return QuadraticProblem(
        start=numbers([-4.0, 3.0]),
        sigma=0.0,
        curvatures=numbers([[[1.0, 0.2], [0.2, 0.2]], [[0.1, -0.05], [-0.05, 0.5]]]),
        optima=numbers([[-0.4, -1.6], [3.2, 0.8]]),
    )


@dataclass(frozen=True)
class LocalPaths:
    """The global and local models of a run in which all clients take part in every round."""

    models: Tensor  # x_0 .. x_T, (T + 1, d)
    local: Tensor  # each client's iterates, (T, N, K + 1, d)
    points: Tensor  # where gradients are taken, (T, N, K, d)

    @property
    def means(self) -> Tensor:
        """The mean of the local models at the end of each round, (T, d)."""
        return self.local[:, :, -1].mean(1)


def record_paths(
    method: Algorithm,
    problem: QuadraticProblem,
    steps: int,
    lr: float,
    rounds: int,
    on_round: OnRound = lambda: None,
) -> LocalPaths:
    """Run a method and record every local iterate.

    FedMIM's clients iterate x - m2, and the server adds m2. The recorded iterates are x, which starts at x_t.
    """
    recording = RecordingMethod(method)
    federation = FederationShape(problem.clients, problem.clients, steps)
    models, _ = run_method(recording, problem, federation, lr, rounds, on_round=on_round)
    points = torch.stack(recording.points).unflatten(0, (rounds, steps)).transpose(1, 2)  # (T, N, K, d)
    uploads, ends = (
        torch.stack(each).unflatten(0, (rounds, problem.clients)).unsqueeze(2)
        for each in (recording.uploads, recording.local_models)
    )
    return LocalPaths(models, torch.cat([points, uploads], dim=2) + (ends - uploads), points)
