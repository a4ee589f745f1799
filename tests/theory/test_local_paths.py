"""The recorded paths are those of a plain computation with numpy, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from fedmim.algorithms import FedAvg, FedMIM, Leap, Scaffold
from fedmim.theory.local_paths import record_paths, two_clients

STEPS, LR, ROUNDS = 4, 0.3, 6
ALPHA, BETA, AHEAD = (0.5, 0.2), (0.9, 0.1), 0.7
PROBLEM = two_clients()
CURVATURES, OPTIMA = PROBLEM.curvatures.numpy(), PROBLEM.optima.numpy()


def increments(models, weights):
    """sum_j weight_j (x_{t-j} - x_{t-j-1}), with x_s = x_0 before round 0."""
    past = [models[max(len(models) - 1 - j, 0)] for j in range(len(weights) + 1)]
    return sum((weight * (past[j] - past[j + 1]) for j, weight in enumerate(weights)), np.zeros(2))


def naive(step, start=lambda models: models[-1], end=lambda mean, models: mean, after=lambda x, ends: None):
    """Global models and local paths; `step` is given the point, the client and the global models so far."""
    models, rounds = [PROBLEM.start.numpy()], []
    for _ in range(ROUNDS):
        paths = []
        for client in range(2):
            path = [start(models)]
            for _ in range(STEPS):
                path.append(step(path[-1], client, models))
            paths.append(path)
        rounds.append(paths)
        ends = [path[-1] for path in paths]
        after(models[-1], ends)
        models.append(end((ends[0] + ends[1]) / 2, models))
    return np.array(models), np.array(rounds)


def gradient(x, client):
    return CURVATURES[client] @ (x - OPTIMA[client])


def naive_fedavg():
    return naive(lambda x, client, models: x - LR * gradient(x, client))


def naive_fedmim():
    own = (1 - sum(ALPHA)) * LR

    def step(x, client, models):
        m1, m2 = -increments(models, ALPHA) / STEPS, -increments(models, BETA) / STEPS
        return x - m1 - own * gradient(x - m2, client)

    return naive(step)


def naive_leap():
    own = (1 - sum(ALPHA)) * LR
    return naive(
        lambda x, client, models: x - own * gradient(x, client),
        start=lambda models: models[-1] + (1 + AHEAD) * increments(models, ALPHA),
        end=lambda mean, models: mean - AHEAD * increments(models, ALPHA),
    )


def naive_scaffold():
    controls = [np.zeros(2), np.zeros(2)]

    def after(x, ends):
        mean = (controls[0] + controls[1]) / 2
        controls[:] = [c - mean + (x - end) / (STEPS * LR) for c, end in zip(controls, ends, strict=True)]

    def step(x, client, models):
        return x - LR * (gradient(x, client) - controls[client] + (controls[0] + controls[1]) / 2)

    return naive(step, after=after)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (FedAvg(), naive_fedavg),
        (Scaffold(), naive_scaffold),
        (FedMIM(ALPHA, BETA), naive_fedmim),
        (Leap(FedAvg(), ALPHA, AHEAD), naive_leap),
    ],
    ids=["fedavg", "scaffold", "fedmim", "leap"],
)
def test_recorded_paths_are_those_of_the_formulas(method, expected):
    run, (models, local) = record_paths(method, PROBLEM, STEPS, LR, ROUNDS), expected()
    np.testing.assert_allclose(run.models, models, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(run.local, local, rtol=1e-12, atol=1e-12)


def test_fedmim_takes_its_gradients_ahead_of_its_iterates():
    run = record_paths(FedMIM(ALPHA, BETA), PROBLEM, STEPS, LR, ROUNDS)
    for t in range(ROUNDS):
        ahead = increments(list(run.models[: t + 1].numpy()), BETA) / STEPS
        np.testing.assert_allclose(
            run.points[t] - run.local[t, :, :-1], np.broadcast_to(ahead, (2, STEPS, 2)), atol=1e-12
        )
