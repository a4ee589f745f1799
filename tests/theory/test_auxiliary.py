"""u_t: by hand, without inertia, and on runs of the simulator (Lemmas 5 and 6)."""

from __future__ import annotations

import pytest
import torch

from fedmim.theory import Federation, Inertia, auxiliary_sequence, increments
from fedmim.theory.valleys import Valleys
from fedmim.theory.walking import walk


def test_u_by_hand():
    """alpha = (1/2, 1/4), A = 1/4: weights 3 on the newest increment and 1 on the one before."""
    models = [torch.tensor([float(x)]) for x in (1, 2, 4, 3)]
    u = auxiliary_sequence(models, (0.5, 0.25))
    assert [float(point) for point in u] == [1, 2 + 3, 4 + 3 * 2 + 1, 3 - 3 + 2]
    assert [float(delta) for delta in increments(models, 2)] == [0, -0.5, -1, 0.5]


@pytest.mark.parametrize("alpha", [(), (0.0,), (0.0, 0.0)])
def test_without_inertia_u_is_x(alpha):
    models = list(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(u, x) for u, x in zip(auxiliary_sequence(models, alpha), models, strict=True))


@pytest.mark.parametrize("inertia", [Inertia(), Inertia((0.9,)), Inertia((0.4, 0.2, 0.1), (0.5, 0.3))])
def test_u_moves_by_the_plain_gradients_of_the_simulator(inertia):
    """Lemma 5, and Lemma 6's recursion of the increments."""
    problem, federation, lr = Valleys.draw(clients=8, sigma=0.5), Federation(8, 3, 4), 0.2
    run = walk(problem, federation, inertia, lr, rounds=12, record=True)
    mean = run.taken.mean((1, 2))
    torch.testing.assert_close(run.ahead[1:], run.ahead[:-1] - 4 * lr * mean, rtol=1e-12, atol=1e-13)
    delta = increments(list(run.models), 4)
    for t in range(12):
        drawn = sum((w * delta[t - j] for j, w in enumerate(inertia.alpha) if j <= t), torch.zeros(4))
        torch.testing.assert_close(delta[t + 1], inertia.A * lr * mean[t] + drawn, rtol=1e-11, atol=1e-13)


def test_the_points_noted_are_those_of_algorithm_1():
    """The first gradient of every client and round is taken at x_t - m2."""
    inertia = Inertia((0.5,), (0.7, 0.2))
    run = walk(Valleys.draw(clients=6), Federation(6, 6, 3), inertia, 0.3, rounds=6, record=True)
    delta = increments(list(run.models), 3)
    for t in range(6):
        m2 = sum((w * delta[t - j] for j, w in enumerate(inertia.beta) if j <= t), torch.zeros(4))
        torch.testing.assert_close(run.points[t, 0], (run.models[t] - m2).expand(6, -1), rtol=1e-12, atol=1e-13)
