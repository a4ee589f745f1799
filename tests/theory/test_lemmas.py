"""The lemmas and theorems on runs of the simulator, over many random settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedmim.theory import Federation, Inertia, Theorem1, Theorem2, largest_rate
from fedmim.theory.lemmas import LAG, LEMMA_5, LEMMA_6, LEMMA_7, LEMMA_8, lemma_ratios, mean_gradients, theorem_ratios
from fedmim.theory.quadratics import Quadratics
from fedmim.theory.random_settings import random_setting
from fedmim.theory.walking import walk


@pytest.mark.parametrize("seed", range(10))
def test_every_lemma_holds_on_random_problems_up_to_the_rate_that_it_admits(seed):
    setting = random_setting(seed)
    lr = setting.lemma_rate
    run = walk(setting.synthetic, setting.federation, setting.inertia, lr, 30, seed, record=True)
    ratios = lemma_ratios(run, setting.synthetic, setting.problem, setting.federation, setting.inertia, lr)
    assert ratios.pop(LEMMA_5) < 1e-10
    assert max(ratios.values()) <= 1 + 1e-9, ratios


@pytest.mark.parametrize("seed", range(8))
def test_the_theorems_hold_on_random_problems_up_to_the_rate_that_they_admit(seed):
    setting = random_setting(100 + seed)
    lr = setting.theorem_rate
    run = walk(setting.synthetic, setting.federation, setting.inertia, lr, 40, seed, record=True)
    ratios = theorem_ratios(run, setting.synthetic, setting.problem, setting.federation, setting.inertia, lr)
    assert max(ratios.values()) < 1, ratios
    assert min(ratios.values()) > 0


def test_a_setting_is_drawn_within_the_conditions():
    draws = [random_setting(seed) for seed in range(60)]
    for each in draws:
        top = 1 / (4 * each.problem.L * each.federation.steps * each.inertia.A**0.5)
        assert 0 < each.theorem_rate < largest_rate(each.problem, each.federation, each.inertia)
        assert 0 < each.lemma_rate <= top
    assert {each.inertia.J for each in draws} == {0, 1, 2, 3}
    assert {type(each.synthetic).__name__ for each in draws} == {"Quadratics", "Valleys"}
    assert {each.federation.active == each.federation.clients for each in draws} == {True, False}


def recorded(inertia, lr, problem=None, rounds=20, steps=6):
    problem = problem or Quadratics.draw(clients=6)
    federation = Federation(6, 6, steps)
    run = walk(problem, federation, inertia, lr, rounds, record=True)
    return lemma_ratios(run, problem, problem.problem(), federation, inertia, lr)


def test_with_one_increment_the_lag_is_an_equality():
    """||m2||^2 = beta^2 ||delta||^2 and ||x - u||^2 = K^2 (1-A)^2 / A^2 ||delta||^2: nothing is given away."""
    assert recorded(Inertia((0.6,), (0.9,)), 0.01)[LAG] == pytest.approx(1)


def test_without_inertia_the_increments_are_the_gradients():
    assert recorded(Inertia(), 0.01)[LEMMA_6] == pytest.approx(1)


def test_at_rest_the_local_gradients_are_a_quarter_of_their_bound():
    """Where drift and increments vanish, lemma 7 is mean ||grad f_i||^2 <= 4 (G^2 + B^2 ||grad f||^2)."""
    problem = Quadratics.draw(clients=6)
    start = replace(problem, start=problem.optimum + 1e-5)
    tightest = problem.at_optimum.square().sum(1).mean() / problem.problem().G ** 2
    assert recorded(Inertia(), 1e-9, start, rounds=2)[LEMMA_7] == pytest.approx(float(tightest) / 4, rel=1e-4)


def test_above_the_rate_that_lemma_8_admits_it_fails():
    """The measured ratio is not below 1 by construction: at 120 times the rate the drift grows beyond its bound."""
    admitted = 1 / (4 * 6)
    assert recorded(Inertia(), admitted, rounds=5)[LEMMA_8] < 1
    assert recorded(Inertia(), 120 * admitted, rounds=5)[LEMMA_8] > 1


def test_a_g_below_the_true_one_shows_as_a_broken_inequality():
    """The other way round: constants that are too small are found out."""
    problem = Quadratics.draw(clients=6)
    at_rest = replace(problem, start=problem.optimum + 1e-5)
    federation, inertia = Federation(6, 6, 2), Inertia()
    run = walk(at_rest, federation, inertia, 1e-6, 3, record=True)
    claimed = replace(at_rest.problem(), G=0.4 * problem.problem().G)
    assert lemma_ratios(run, at_rest, claimed, federation, inertia, 1e-6)[LEMMA_7] > 1


@pytest.mark.parametrize("inertia", [Inertia(), Inertia((0.6, 0.3), (0.9, 0.1))])
def test_theorem_2_holds_for_its_output_on_a_quadratic_with_noise(inertia):
    problem = Quadratics.draw(clients=6, sigma=1.0, eigenvalues=(0.9, 1.0))
    federation = Federation(6, 2, 2)
    lr = 0.5 * largest_rate(problem.problem(), federation, inertia)
    rounds = 700
    run = walk(problem, federation, inertia, lr, rounds)
    squares = problem.gradient(run.ahead[:-1]).square().sum(1)
    largest = float(mean_gradients(run.ahead, lr, 2).square().sum(1).max())
    bound = Theorem2(problem.problem(c=largest), federation, inertia, lr)
    output = sum(w * float(a) for w, a in zip(bound.output_weights(rounds), squares, strict=True))
    assert rounds >= bound.least_rounds
    assert 0 < output < bound.at(rounds)
    assert float(squares.min()) < Theorem1(problem.problem(c=largest), federation, inertia, lr).at(rounds)
