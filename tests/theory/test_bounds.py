"""The bounds of the theorems: by hand, monotone, and inverted."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from fedmim.errors import UserError
from fedmim.theory import Federation, Inertia, Problem, Theorem1, Theorem2

PROBLEM = Problem(L=2.0, sigma=1.5, G=0.7, B=1.0, gap=3.0, C=5.0, mu=0.5)
FEDERATION = Federation(clients=20, active=4, steps=5)
INERTIA = Inertia((0.6, 0.3), (0.9, 0.1))
RATE = 5e-4


def test_theorem_1_by_hand():
    """L = 1, eta = 1/1000, K = 2, S = 4, A = 1/2, rho = 1/2, J = 1, with all squares chosen to be small numbers."""
    problem = Problem(L=1.0, sigma=2.0, G=3.0, B=1.0, gap=7.0, C=10.0)
    bound = Theorem1(problem, Federation(10, 4, 2), Inertia((0.5,), (0.5,)), 1e-3, lam=0.4)
    v = 6 * 0.5 * 4 + (27 / 64 + 1) * (0.25 + 4)
    psi = (1e-3 * 4 / 4 + 4e-3 * 2 * 9 / 4 + 9e-6 * 2 * 0.25 * 4 + 72e-6 * 0.5 * 4 * 9 + 3e-6 * v * 10) / 0.4
    assert bound.floor == pytest.approx(psi)
    assert bound.at(100) == pytest.approx(7 / (0.4 * 1e-3 * 2 * 100) + psi)


def test_theorem_2_has_twice_the_floor_and_an_exponential_before_it():
    first, second = (kind(PROBLEM, FEDERATION, INERTIA, RATE) for kind in (Theorem1, Theorem2))
    assert second.floor == pytest.approx(2 * first.floor)
    rate = 0.5 * RATE * first.lam * 5
    assert second.contraction == pytest.approx(rate)
    assert second.at(5000) == pytest.approx(4 * 0.5 * 3 * exp(-rate * 5000) + second.floor)


def test_theorem_2_bounds_the_output_of_the_slowest_sequence_that_its_inequality_allows():
    """F_{t+1} = (1 - q) F_t - (eta K lambda / 2) a_t + eta K lambda Psi_1, with a_t >= 2 mu F_t."""
    bound = Theorem2(PROBLEM, FEDERATION, INERTIA, RATE)
    speed, q = bound.lam * RATE * 5, bound.contraction
    rounds = 3 * bound.least_rounds
    for greed in (0.0, 0.5, 1.0):  # which part of what is left goes into the gradient
        height, gradients = PROBLEM.gap, []
        for _ in range(rounds):
            free = (1 - q) * height + speed * bound.floor / 2
            gradients.append(max(2 * PROBLEM.mu * height, greed * 2 * free / speed))
            height = max(0.0, free - speed / 2 * gradients[-1])
        weights = bound.output_weights(rounds)
        assert sum(w * a for w, a in zip(weights, gradients, strict=True)) <= bound.at(rounds)


def test_the_weights_of_the_output_grow_from_round_to_round_and_sum_to_one():
    bound = Theorem2(PROBLEM, FEDERATION, INERTIA, RATE)
    weights = bound.output_weights(50)
    assert sum(weights) == pytest.approx(1)
    assert weights[31] / weights[30] == pytest.approx(1 / (1 - bound.contraction))


def test_theorem_2_speaks_only_from_its_least_round_on():
    bound = Theorem2(PROBLEM, FEDERATION, INERTIA, RATE)
    least = bound.least_rounds
    needed = 1 / (PROBLEM.mu * bound.lam * 5 * RATE)
    assert least - 1 < needed <= least
    bound.at(least)
    with pytest.raises(UserError, match=r"eta >= 1 / \(mu lambda K T\)"):
        bound.at(least - 1)


@pytest.mark.parametrize("theorem", [Theorem1, Theorem2])
@pytest.mark.parametrize("excess", [1.001, 1.1, 3.0, 50.0])
def test_rounds_to_an_accuracy_are_the_least_that_reach_it(theorem, excess):
    bound = theorem(PROBLEM, FEDERATION, INERTIA, RATE)
    accuracy = excess * bound.floor
    rounds = bound.rounds_to(accuracy)
    assert bound.at(rounds) <= accuracy * (1 + 1e-9)
    least = getattr(bound, "least_rounds", 1)
    assert rounds == least or bound.at(rounds - 1) > accuracy


@pytest.mark.parametrize("theorem", [Theorem1, Theorem2])
def test_an_accuracy_below_the_floor_is_refused(theorem):
    bound = theorem(PROBLEM, FEDERATION, INERTIA, RATE)
    with pytest.raises(UserError, match=r"accuracy: .* is below the bound's floor"):
        bound.rounds_to(bound.floor)
    with pytest.raises(UserError, match="rounds: must be at least 1"):
        bound.at(0)


@pytest.mark.parametrize("theorem", [Theorem1, Theorem2])
@pytest.mark.parametrize("constant", ["L", "sigma", "G", "B", "C", "gap"])
def test_the_bound_grows_with_each_constant_of_the_problem(theorem, constant):
    bounds = []
    for factor in (1.0, 1.1, 1.2, 1.3):
        problem = replace(PROBLEM, **{constant: factor * getattr(PROBLEM, constant)})
        bounds.append(theorem(problem, FEDERATION, INERTIA, RATE).at(20_000))
    assert bounds == sorted(set(bounds))


def test_the_floor_grows_with_k_and_rho_and_with_the_inertia_and_falls_with_s():
    floors = [Theorem1(PROBLEM, replace(FEDERATION, steps=k), INERTIA, RATE).floor for k in (1, 2, 5, 10)]
    assert floors == sorted(set(floors))
    floors = [Theorem1(PROBLEM, FEDERATION, Inertia((0.6,), (rho,)), RATE).floor for rho in (0, 0.1, 0.5, 1, 2)]
    assert floors == sorted(set(floors))
    floors = [Theorem1(PROBLEM, FEDERATION, Inertia((alpha,)), RATE).floor for alpha in (0, 0.1, 0.5, 0.9, 0.99)]
    assert floors == sorted(set(floors))
    floors = [Theorem1(PROBLEM, replace(FEDERATION, active=s), INERTIA, RATE).floor for s in (20, 10, 2, 1)]
    assert floors == sorted(set(floors))


def test_where_c_is_far_below_g_squared_inertia_lowers_the_bound():
    """The one case in which the bound favours inertia: 72 A K^2 G^2 outweighs 3 V C."""
    problem = Problem(L=1.0, sigma=0.0, G=10.0, gap=1.0, C=1e-3)
    floors = [Theorem1(problem, Federation(100, 100, 5), Inertia((alpha,)), 1e-3).floor for alpha in (0.9, 0.5, 0)]
    assert floors == sorted(set(floors))
