"""The response of a task: against quadratics, and that look-ahead by the rule never adds noise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import classification
from torch.nn.utils import parameters_to_vector

import fedmim
from fedmim.theory import FederationShape, Inertia
from fedmim.theory.look_ahead import convergence_factor, noise_gain
from fedmim.theory.measurement import measure
from fedmim.theory.quadratics import QuadraticProblem
from fedmim.theory.recommendation import safe_ahead
from fedmim.theory.response import largest_response
from fedmim.theory.synthetic_runs import plain_settings

ALPHAS = [(0.9,), (0.5,), (0.6, 0.3), (0.3, 0.2), (0.3, 0.3, 0.3), (0.09,) * 10]


@pytest.mark.parametrize("engine", ["serial", "vectorised"])
@pytest.mark.parametrize("lr", [0.05, 0.9, 1.9])
def test_on_quadratics_it_is_the_largest_eigenvalue_of_what_local_training_takes_back(engine, lr):
    """I - mean_i (I - r H_i)^K, for some of the clients, from any point."""
    problem, some = QuadraticProblem.draw(clients=8, dimension=3), [1, 4, 6]
    left = torch.linalg.matrix_power(torch.eye(3, dtype=torch.float64) - lr * problem.curvatures[some], 4)
    expected = float(torch.linalg.eigvalsh(torch.eye(3, dtype=torch.float64) - left.mean(0)).abs().max())
    settings = plain_settings(FederationShape(8, 4, 4), lr=0.3, rounds=5)
    found = largest_response(problem.task(), settings, problem.start, some, lr, engine)
    assert found == pytest.approx(expected, rel=1e-6)


def test_measured_points_have_the_response_at_the_learning_rate_of_their_round():
    problem = QuadraticProblem.draw(clients=8, dimension=3)
    settings = replace(plain_settings(FederationShape(8, 4, 4), lr=1.0, rounds=4), lr_decay=0.5)
    found = measure(problem.task(), settings, Inertia((0.9,)), points=3, clients=8, iterations=1)
    for point, lr in zip(found.points, (1.0, 0.25, 0.0625), strict=True):
        expected = largest_response(problem.task(), settings, problem.start, range(8), 0.1 * lr)
        assert point.response == pytest.approx(expected, rel=1e-6)
    assert found.response == found.points[0].response


def test_minibatches_and_clipping_are_those_of_the_run_and_the_same_at_both_points():
    """With minibatches of one sample, other minibatches at the second point would look like a huge response."""
    task = classification(sizes=(6, 9, 7))
    w = parameters_to_vector(task.model.parameters()).detach()
    settings = fedmim.Settings(rounds=3, batch_size=1, lr=0.1, clip_norm=0.5)
    found = largest_response(task, settings, w, [0, 1, 2], 0.01)
    assert 0 < found < 0.5
    assert largest_response(task, settings, w, [0, 1, 2], 0.01) == found
    assert largest_response(task, replace(settings, clip_norm=None), w, [0, 1, 2], 0.01) != found


def test_the_response_is_zero_where_local_training_does_not_move():
    problem = QuadraticProblem.draw(clients=1, dimension=2, spread=0.0)
    settings = plain_settings(FederationShape(1, 1, 2), lr=0.1, rounds=2)
    assert largest_response(problem.task(), settings, torch.zeros(2, dtype=torch.float64), [0], 0.1) == 0.0


@pytest.mark.parametrize("alpha", ALPHAS)
def test_look_ahead_by_the_rule_is_stable_and_adds_no_noise_in_any_direction(alpha):
    for largest in np.linspace(0.02, 1.1, 7):
        ahead = safe_ahead(largest, alpha)
        assert ahead >= 0
        for q in np.linspace(0.05, 1.0, 8) * largest:
            assert noise_gain(q, alpha, ahead) <= noise_gain(q, alpha) * (1 + 1e-9), (largest, q)
            assert convergence_factor(q, alpha, ahead) < 1


def test_look_ahead_by_the_rule_ends_where_a_round_takes_back_everything():
    assert safe_ahead(0.3, (0.9,)) == 4.0  # 4.008 by the formula
    assert safe_ahead(0.6, (0.9,)) == 1.0  # 1.084
    assert [safe_ahead(q, (0.6, 0.3)) for q in (0.99, 1.0, 1.5, 2.5, 0.0)] == [0.0] * 5
