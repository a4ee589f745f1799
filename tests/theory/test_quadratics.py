"""Quadratics: their constants, and their exact analysis against runs of the simulator and independent formulas."""

from __future__ import annotations

import pytest
import torch

import fedmim
from fedmim.errors import UserError
from fedmim.theory import FederationShape, Inertia
from fedmim.theory.quadratics import (
    QuadraticProblem,
    bias,
    contraction,
    first_order_bias,
    largest_stable_lr,
    resting_point,
    round_matrix,
    scaffold_contraction,
)
from fedmim.theory.synthetic_runs import run_fedmim, run_method

PROBLEM = QuadraticProblem.draw(clients=6, dimension=3)
EVERYONE = FederationShape(6, 6, 5)
WEIGHTS = [
    Inertia(),
    Inertia((0.5,)),
    Inertia((0.3, 0.2), (0.9, 0.1)),
    Inertia((), (0.7,)),
    Inertia((0.2,), (0.1, 0.4)),
]


def test_too_small_a_b_for_quadratics_is_an_error():
    problem = QuadraticProblem.draw()
    with pytest.raises(UserError, match="B: must be above"):
        problem.heterogeneity(0.999 * problem.least_b)


def test_the_curvatures_reach_the_ends_of_their_range_and_the_gradients_at_the_optimum_cancel():
    problem = QuadraticProblem.draw(eigenvalues=(0.25, 2.0))
    assert problem.smoothness == pytest.approx(2.0)
    assert 0.25 <= problem.mu <= 2.0
    assert problem.at_optimum.mean(0).norm() < 1e-12
    assert problem.lowest < problem.value(problem.optimum + 0.01)


def test_another_spread_scales_g_and_leaves_the_optimum():
    problem = QuadraticProblem.draw()
    wider = problem.with_spread(3.0)
    torch.testing.assert_close(wider.optimum, problem.optimum)
    assert wider.heterogeneity(2.0) == pytest.approx(3 * problem.heterogeneity(2.0))


@pytest.mark.parametrize("inertia", WEIGHTS)
def test_a_round_of_the_simulator_is_the_linear_map(inertia):
    lr, memory = 0.3, inertia.J
    models = run_fedmim(PROBLEM, EVERYONE, inertia, lr, rounds=8).models
    rest = resting_point(PROBLEM, inertia.A * lr, 5)
    matrix = round_matrix(PROBLEM, inertia, lr, 5)
    for t in range(8):
        past = torch.cat([models[max(t - j, 0)] - rest for j in range(memory + 1)])
        torch.testing.assert_close((matrix @ past)[:3], models[t + 1] - rest, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("inertia", WEIGHTS)
def test_the_simulator_comes_to_rest_where_it_should(inertia):
    models = run_fedmim(PROBLEM, EVERYONE, inertia, 0.4, rounds=90).models
    torch.testing.assert_close(models[-1], resting_point(PROBLEM, inertia.A * 0.4, 5), rtol=1e-9, atol=1e-9)
    assert float((models[-1] - PROBLEM.optimum).norm()) == pytest.approx(bias(PROBLEM, inertia, 0.4, 5))


def test_the_resting_point_has_no_mean_pull():
    """The mean over clients of x - x_K is zero there, with x_K by K explicit steps."""
    x = resting_point(PROBLEM, 0.4, 5)
    local = x.expand(6, -1)
    for _ in range(5):
        local = local - 0.4 * PROBLEM.gradients(local)
    torch.testing.assert_close(local.mean(0), x, rtol=1e-12, atol=1e-12)


def test_to_first_order_the_bias_is_that_of_the_formula_and_a_times_fedavgs():
    for lr, tolerance in ((1e-2, 2e-2), (1e-4, 2e-4)):
        plain = bias(PROBLEM, Inertia(), lr, 5)
        assert plain == pytest.approx(first_order_bias(PROBLEM, Inertia(), lr, 5), rel=tolerance)
        for inertia in (Inertia((0.9,)), Inertia((0.6, 0.3), (0.9, 0.1))):
            assert bias(PROBLEM, inertia, lr, 5) / plain == pytest.approx(0.1, rel=tolerance)


def test_one_local_step_or_equal_curvatures_leave_no_bias_whatever_g_is():
    assert bias(PROBLEM, Inertia(), 0.4, 1) < 1e-12
    equal = QuadraticProblem(PROBLEM.start, 0.0, PROBLEM.curvatures[:1].expand(6, -1, -1), 5 * PROBLEM.optima)
    assert equal.constants(b=2.0).G > 1
    assert bias(equal, Inertia(), 0.4, 20) < 1e-12


@pytest.mark.parametrize("inertia", WEIGHTS)
def test_the_distance_shrinks_by_the_contraction_in_the_long_run(inertia):
    lr, factor = 0.1, contraction(PROBLEM, inertia, 0.1, 5)
    models = run_fedmim(PROBLEM, EVERYONE, inertia, lr, rounds=60).models
    rest = resting_point(PROBLEM, inertia.A * lr, 5)
    distances = (models - rest).norm(dim=1)
    assert float(distances[60] / distances[30]) ** (1 / 30) == pytest.approx(factor, rel=0.03)


def test_fedavg_contracts_by_the_largest_eigenvalue_of_the_mean_decay():
    single = torch.eye(3, dtype=torch.float64) - 0.3 * PROBLEM.curvatures
    decay = (single @ single @ single @ single @ single).mean(0)
    assert contraction(PROBLEM, Inertia(), 0.3, 5) == pytest.approx(float(torch.linalg.eigvalsh(decay).abs().max()))


def test_scaffold_rests_at_the_optimum_and_shrinks_by_its_contraction():
    models, _ = run_method(fedmim.Scaffold(), PROBLEM, EVERYONE, 0.1, rounds=60)
    distances = (models - PROBLEM.optimum).norm(dim=1)
    assert float(distances[60]) < 1e-8
    factor = scaffold_contraction(PROBLEM, 0.1, 5)
    assert float(distances[40] / distances[20]) ** (1 / 20) == pytest.approx(factor, rel=0.03)


@pytest.mark.parametrize("inertia", [Inertia(), Inertia((0.9,)), Inertia((0.6, 0.3), (0.9, 0.1))])
def test_the_simulator_is_stable_up_to_the_largest_stable_learning_rate_and_no_further(inertia):
    largest = largest_stable_lr(PROBLEM, inertia, 5)
    start = {}
    for factor in (0.95, 1.05):
        models = run_fedmim(PROBLEM, EVERYONE, inertia, factor * largest, rounds=40).models
        rest = resting_point(PROBLEM, inertia.A * factor * largest, 5)
        start[factor] = float((models[-1] - rest).norm() / (models[20] - rest).norm())
    assert start[0.95] < 1 < start[1.05]


def test_beyond_a_progress_of_a_quarter_of_a_inertia_falls_by_the_root_of_alpha_whatever_the_learning_rate():
    """K = 1 on one curvature h is heavy ball: z^2 - (1 + alpha - A eta h) z + alpha = 0, complex from
    eta h = A / (1 + sqrt(alpha))^2 on, and then |z|^2 = alpha."""
    single = QuadraticProblem(
        torch.ones(1, dtype=torch.float64), 0.0, torch.ones(2, 1, 1).double(), torch.zeros(2, 1).double()
    )
    alpha, turn = 0.9, 0.1 / (1 + 0.9**0.5) ** 2
    for lr in (1.01 * turn, 3 * turn, 0.5):
        assert contraction(single, Inertia((alpha,)), lr, 1) == pytest.approx(0.9**0.5)
    assert contraction(single, Inertia((alpha,)), 0.5 * turn, 1) > 0.9**0.5
    # At the turn FedAvg needs twice the rounds.
    plain = contraction(single, Inertia(), turn, 1)
    assert float(torch.tensor(0.9**0.5).log() / torch.tensor(plain).log()) == pytest.approx(2, rel=0.03)


def test_at_a_common_small_learning_rate_inertia_is_as_fast_as_fedavg():
    """Lemma 5: u moves by the plain gradients; the smaller the learning rate, the closer."""
    speeds = {}
    for lr in (1e-2, 1e-4):
        plain, heavy = (-torch.tensor(contraction(PROBLEM, each, lr, 5)).log() for each in (Inertia(), Inertia((0.9,))))
        speeds[lr] = float(heavy / plain)
    assert speeds[1e-4] == pytest.approx(1, abs=0.01)
    assert abs(speeds[1e-4] - 1) < abs(speeds[1e-2] - 1)
