"""Look-ahead on quadratics: the recursion against Leap, formulas for one increment, noise by simulation."""

import math

import numpy as np
import pytest
import torch

import fedmim
from fedmim.errors import UserError
from fedmim.theory.look_ahead import convergence_factor, largest_ahead, noise_gain, quietest_ahead, response

ALPHAS = [(0.9,), (0.5,), (0.6, 0.3), (0.3, 0.3, 0.3), (0.09,) * 10]


class Parabola(torch.nn.Module):
    """The loss curvature / 2 (w - target)^2, by the output sqrt(curvature) * w."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))

    def forward(self, x):
        return x * self.w


@pytest.mark.parametrize("alpha", [(0.9,), (0.6, 0.3)])
@pytest.mark.parametrize("ahead", [0.0, 0.5, 2.0])
def test_leap_follows_the_recursion(alpha, ahead):
    """Clients with curvature 2 and optima -1, 0 and 7: their mean moves like one client with the optimum 2."""
    curvature, optima, lr, steps = 2.0, (-1.0, 0.0, 7.0), 0.3, 4
    x = torch.full((1, 1), math.sqrt(curvature), dtype=torch.float64)
    task = fedmim.Task(
        Parabola(),
        [(x, x * optimum) for optimum in optima],
        (x, x),
        loss=lambda outputs, y: ((outputs - y) ** 2).mean() / 2,
    )
    settings = fedmim.Settings(
        rounds=12, participation=1.0, local_steps=steps, lr=lr, lr_decay=1.0, weight_decay=0.0, clip_norm=None
    )
    run = fedmim.rounds(fedmim.Leap(fedmim.FedAvg(), alpha=alpha, ahead=ahead), task, settings)
    q = response(lr, curvature, steps, alpha)
    optimum = sum(optima) / 3
    errors = [1.0 - optimum] * (len(alpha) + 1)  # the newest first
    for record in run:
        inertia = sum(a * (errors[j] - errors[j + 1]) for j, a in enumerate(alpha))
        errors = [(1 - q) * errors[0] + (1 - q * (1 + ahead)) * inertia, *errors[:-1]]
        assert run.params.item() - optimum == pytest.approx(errors[0], abs=1e-9), record.round


def test_the_edge_of_one_increment_is_the_formula():
    for a in (0.3, 0.5, 0.9):
        for q in (0.05, 0.3, 0.7, 1.0):
            edge = (1 + a) / (a * q) - 1 / (2 * a) - 1  # where the recursion has the eigenvalue -1
            assert largest_ahead(q, (a,)) == pytest.approx(edge, abs=1e-5)


def test_half_of_one_over_alpha_is_stable_wherever_local_training_is():
    for a in (0.1, 0.5, 0.9):
        for q in np.linspace(0.01, 0.99, 30):
            assert convergence_factor(q, (a,), 1 / (2 * a)) < 1
        assert convergence_factor(1.0, (a,), 1 / (2 * a) + 0.01) > 1


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_error_shrinks_below_the_edge_and_grows_above_it(alpha):
    for q in (0.2, 0.6, 1.0):
        edge = largest_ahead(q, alpha)
        assert convergence_factor(q, alpha, 0.99 * edge) < 1 < convergence_factor(q, alpha, 1.01 * edge)


def test_noise_of_one_increment_is_the_formula():
    for a, q, c in [(0.9, 0.1, 0.0), (0.9, 0.1, 3.0), (0.5, 0.7, 1.0), (0.9, 1.0, 0.4)]:
        u = a * (1 - q * (1 + c))
        assert noise_gain(q, (a,), c) == pytest.approx(q * (1 + u) / ((1 - u) * (2 + 2 * u - q)))
    assert noise_gain(1.0, (0.9,), 1.0) == math.inf


def test_noise_without_inertia_is_that_of_sgd():
    assert noise_gain(0.3, ()) == pytest.approx(0.3 / (2 - 0.3))


def test_noise_of_two_increments_by_simulation():
    generator, q, alpha, c = np.random.default_rng(0), 0.3, (0.6, 0.3), 2.0
    errors, squares = [np.zeros(4000)] * 3, 0.0
    for step in range(400):
        inertia = alpha[0] * (errors[0] - errors[1]) + alpha[1] * (errors[1] - errors[2])
        new = (1 - q) * errors[0] + (1 - q * (1 + c)) * inertia + q * generator.standard_normal(4000)
        errors = [new, *errors[:-1]]
        squares += (new**2).mean() / 200 if step >= 200 else 0.0
    assert noise_gain(q, alpha, c) == pytest.approx(squares, rel=0.01)


def test_look_ahead_dampens_noise_where_the_response_is_small_and_adds_to_it_where_it_is_large():
    assert noise_gain(0.1, (0.6, 0.3), 4.0) < 0.5 * noise_gain(0.1, (0.6, 0.3))
    assert noise_gain(1.0, (0.6, 0.3), 1.0) > 1.5 * noise_gain(1.0, (0.6, 0.3))


def test_the_quietest_look_ahead_of_one_increment_is_the_formula():
    """The noise gain is smallest where u = alpha (1 - q (1 + c)) solves u^2 + 2u + 1 = q, that is u = sqrt(q) - 1."""
    for a in (0.5, 0.9):
        for q in (0.1, 0.3, 0.6, 0.9, 1.0):
            assert quietest_ahead(q, (a,)) == pytest.approx((1 + (1 - math.sqrt(q)) / a) / q - 1, abs=1e-3)
            assert noise_gain(q, (a,), quietest_ahead(q, (a,))) == pytest.approx(q / (2 - math.sqrt(q)) ** 2, rel=1e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_quietest_look_ahead_is_inside_the_edge_and_zero_where_a_round_covers_the_whole_distance(alpha):
    for q in (0.2, 0.5, 0.8):
        quietest = quietest_ahead(q, alpha)
        assert 0 < quietest < largest_ahead(q, alpha)
        assert noise_gain(q, alpha, quietest) < min(noise_gain(q, alpha, factor * quietest) for factor in (0.9, 1.1))
    assert quietest_ahead(1.0, alpha) == pytest.approx(0.0, abs=1e-3)
    assert quietest_ahead(0.5, ()) == 0.0


def test_look_ahead_speeds_up_the_escape_along_negative_curvature():
    q = response(0.1, -0.5, 20, (0.9,))
    assert q < 0
    assert convergence_factor(q, (0.9,), 3.0) > convergence_factor(q, (0.9,)) > 1


def test_a_response_that_no_stable_local_training_has_is_rejected():
    with pytest.raises(UserError, match="q: must be above 0 and below 2"):
        largest_ahead(2.5, (0.9,))
