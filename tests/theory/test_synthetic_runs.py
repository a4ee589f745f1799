"""What is recorded of a run is what Algorithm 1 and Lemmas 5 and 6 say."""

from __future__ import annotations

import pytest
import torch

from fedmim.theory import FederationShape, Inertia, increments
from fedmim.theory.synthetic import NonConvexProblem
from fedmim.theory.synthetic_runs import run_fedmim


@pytest.mark.parametrize("inertia", [Inertia(), Inertia((0.9,)), Inertia((0.4, 0.2, 0.1), (0.5, 0.3))])
def test_u_moves_by_the_plain_gradients_of_the_simulator(inertia):
    """Lemma 5, and Lemma 6's recursion of the increments."""
    problem, federation, lr = NonConvexProblem.draw(clients=8, sigma=0.5), FederationShape(8, 3, 4), 0.2
    run = run_fedmim(problem, federation, inertia, lr, rounds=12, record=True)
    mean = run.taken.mean((1, 2))
    torch.testing.assert_close(run.auxiliary[1:], run.auxiliary[:-1] - 4 * lr * mean, rtol=1e-12, atol=1e-13)
    delta = increments(list(run.models), 4)
    for t in range(12):
        drawn = sum((w * delta[t - j] for j, w in enumerate(inertia.alpha) if j <= t), torch.zeros(4))
        torch.testing.assert_close(delta[t + 1], inertia.A * lr * mean[t] + drawn, rtol=1e-11, atol=1e-13)


def test_the_recorded_points_are_those_of_algorithm_1():
    """The first gradient of every client and round is taken at x_t - m2."""
    inertia = Inertia((0.5,), (0.7, 0.2))
    run = run_fedmim(NonConvexProblem.draw(clients=6), FederationShape(6, 6, 3), inertia, 0.3, rounds=6, record=True)
    delta = increments(list(run.models), 3)
    for t in range(6):
        m2 = sum((w * delta[t - j] for j, w in enumerate(inertia.beta) if j <= t), torch.zeros(4))
        torch.testing.assert_close(run.points[t, 0], (run.models[t] - m2).expand(6, -1), rtol=1e-12, atol=1e-13)
