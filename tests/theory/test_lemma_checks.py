"""The lemmas and theorems on runs of the simulator, over many random settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedmim.theory import FederationShape, Inertia, Theorem1, Theorem2, largest_lr
from fedmim.theory.lemma_checks import (
    LAG,
    LEMMA_5,
    LEMMA_6,
    LEMMA_7,
    LEMMA_8,
    lemma_ratios,
    random_case,
    theorem_ratios,
)
from fedmim.theory.quadratics import QuadraticProblem
from fedmim.theory.synthetic import NonConvexProblem
from fedmim.theory.synthetic_runs import run_fedmim


@pytest.mark.parametrize("seed", range(10))
def test_every_lemma_holds_on_random_problems_up_to_the_learning_rate_that_it_allows(seed):
    case = random_case(seed)
    run = run_fedmim(case.problem, case.federation, case.inertia, case.lemma_lr, 30, seed, record=True)
    ratios = lemma_ratios(run, case.constants)
    assert ratios.pop(LEMMA_5) < 1e-10
    assert max(ratios.values()) <= 1 + 1e-9, ratios


@pytest.mark.parametrize("seed", range(8))
def test_the_theorems_hold_on_random_problems_up_to_the_learning_rate_that_they_allow(seed):
    case = random_case(100 + seed)
    run = run_fedmim(case.problem, case.federation, case.inertia, case.theorem_lr, 40, seed)
    ratios = theorem_ratios(run, case.constants)
    assert max(ratios.values()) < 1, ratios
    assert min(ratios.values()) > 0


def test_a_case_is_drawn_within_the_conditions():
    draws = [random_case(seed) for seed in range(60)]
    for each in draws:
        top = 1 / (4 * each.constants.L * each.federation.steps * each.inertia.A**0.5)
        assert 0 < each.theorem_lr < largest_lr(each.constants, each.federation, each.inertia)
        assert 0 < each.lemma_lr <= top
    assert {each.inertia.J for each in draws} == {0, 1, 2, 3}
    assert {type(each.problem) for each in draws} == {QuadraticProblem, NonConvexProblem}
    assert {each.federation.active == each.federation.clients for each in draws} == {True, False}


def recorded(inertia, lr, problem=None, rounds=20, steps=6):
    problem = problem or QuadraticProblem.draw(clients=6)
    federation = FederationShape(6, 6, steps)
    run = run_fedmim(problem, federation, inertia, lr, rounds, record=True)
    return lemma_ratios(run, problem.constants())


def test_with_one_increment_the_lag_is_an_equality():
    """||m2||^2 = beta^2 ||delta||^2 and ||x - u||^2 = K^2 (1-A)^2 / A^2 ||delta||^2: nothing is given away."""
    assert recorded(Inertia((0.6,), (0.9,)), 0.01)[LAG] == pytest.approx(1)


def test_without_inertia_the_increments_are_the_gradients():
    assert recorded(Inertia(), 0.01)[LEMMA_6] == pytest.approx(1)


def test_at_rest_the_local_gradients_are_a_quarter_of_their_bound():
    """Where drift and increments vanish, lemma 7 is mean ||grad f_i||^2 <= 4 (G^2 + B^2 ||grad f||^2)."""
    problem = QuadraticProblem.draw(clients=6)
    start = replace(problem, start=problem.optimum + 1e-5)
    tightest = problem.at_optimum.square().sum(1).mean() / problem.constants().G ** 2
    assert recorded(Inertia(), 1e-9, start, rounds=2)[LEMMA_7] == pytest.approx(float(tightest) / 4, rel=1e-4)


def test_above_the_learning_rate_that_lemma_8_allows_it_fails():
    """The measured ratio is not below 1 by construction: at 120 times the limit the drift grows beyond its bound."""
    limit = 1 / (4 * 6)
    assert recorded(Inertia(), limit, rounds=5)[LEMMA_8] < 1
    assert recorded(Inertia(), 120 * limit, rounds=5)[LEMMA_8] > 1


def test_a_g_below_the_true_one_shows_as_a_broken_inequality():
    """The other way round: constants that are too small are found out."""
    problem = QuadraticProblem.draw(clients=6)
    at_rest = replace(problem, start=problem.optimum + 1e-5)
    federation, inertia = FederationShape(6, 6, 2), Inertia()
    run = run_fedmim(at_rest, federation, inertia, 1e-6, 3, record=True)
    claimed = replace(at_rest.constants(), G=0.4 * problem.constants().G)
    assert lemma_ratios(run, claimed)[LEMMA_7] > 1


@pytest.mark.parametrize("inertia", [Inertia(), Inertia((0.6, 0.3), (0.9, 0.1))])
def test_theorem_2_holds_for_its_output_on_a_quadratic_with_noise(inertia):
    problem = QuadraticProblem.draw(clients=6, sigma=1.0, eigenvalues=(0.9, 1.0))
    federation = FederationShape(6, 2, 2)
    lr = 0.5 * largest_lr(problem.constants(), federation, inertia)
    rounds = 700
    run = run_fedmim(problem, federation, inertia, lr, rounds)
    squares = problem.gradient(run.auxiliary[:-1]).square().sum(1)
    constants = problem.constants(c=run.gradient_bound)
    bound = Theorem2(constants, federation, inertia, lr)
    output = sum(w * float(a) for w, a in zip(bound.output_weights(rounds), squares, strict=True))
    assert rounds >= bound.least_rounds
    assert 0 < output < bound.at(rounds)
    assert float(squares.min()) < Theorem1(constants, federation, inertia, lr).at(rounds)
