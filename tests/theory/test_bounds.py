"""The bounds of the theorems: by hand, monotone, inverted, and at the learning rates with the lowest ones."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import pytest

from fedmim.errors import UserError
from fedmim.theory import (
    FederationShape,
    Inertia,
    ProblemConstants,
    Theorem1,
    Theorem2,
    best_bound,
    best_lr,
    best_lr_under_pl,
    largest_lr,
    remark_1_lr,
    remark_2_lr,
    rounds_needed,
)

CONSTANTS = ProblemConstants(L=2.0, sigma=1.5, G=0.7, B=1.0, gap=3.0, C=5.0, mu=0.5)
FEDERATION = FederationShape(clients=20, active=4, steps=5)
INERTIA = Inertia((0.6, 0.3), (0.9, 0.1))
LR = 5e-4
WITHOUT_C = replace(CONSTANTS, C=None)
WEIGHTS = [Inertia(), Inertia((0.9,)), INERTIA]


def test_theorem_1_by_hand():
    """L = 1, eta = 1/1000, K = 2, S = 4, A = 1/2, rho = 1/2, J = 1, with all squares chosen to be small numbers."""
    constants = ProblemConstants(L=1.0, sigma=2.0, G=3.0, B=1.0, gap=7.0, C=10.0)
    bound = Theorem1(constants, FederationShape(10, 4, 2), Inertia((0.5,), (0.5,)), 1e-3, lam=0.4)
    v = 6 * 0.5 * 4 + (27 / 64 + 1) * (0.25 + 4)
    psi = (1e-3 * 4 / 4 + 4e-3 * 2 * 9 / 4 + 9e-6 * 2 * 0.25 * 4 + 72e-6 * 0.5 * 4 * 9 + 3e-6 * v * 10) / 0.4
    assert bound.floor == pytest.approx(psi)
    assert bound.at(100) == pytest.approx(7 / (0.4 * 1e-3 * 2 * 100) + psi)


def test_theorem_2_has_twice_the_floor_and_an_exponential_before_it():
    first, second = (kind(CONSTANTS, FEDERATION, INERTIA, LR) for kind in (Theorem1, Theorem2))
    assert second.floor == pytest.approx(2 * first.floor)
    decay = 0.5 * LR * first.lam * 5
    assert second.contraction == pytest.approx(decay)
    assert second.at(5000) == pytest.approx(4 * 0.5 * 3 * exp(-decay * 5000) + second.floor)


def test_theorem_2_bounds_the_output_of_the_slowest_sequence_that_its_inequality_allows():
    """F_{t+1} = (1 - q) F_t - (eta K lambda / 2) a_t + eta K lambda Psi_1, with a_t >= 2 mu F_t."""
    bound = Theorem2(CONSTANTS, FEDERATION, INERTIA, LR)
    speed, q = bound.lam * LR * 5, bound.contraction
    rounds = 3 * bound.least_rounds
    for greed in (0.0, 0.5, 1.0):  # which part of what is left goes into the gradient
        height, gradients = CONSTANTS.gap, []
        for _ in range(rounds):
            free = (1 - q) * height + speed * bound.floor / 2
            gradients.append(max(2 * CONSTANTS.mu * height, greed * 2 * free / speed))
            height = max(0.0, free - speed / 2 * gradients[-1])
        weights = bound.output_weights(rounds)
        assert sum(w * a for w, a in zip(weights, gradients, strict=True)) <= bound.at(rounds)


def test_the_weights_of_the_output_grow_from_round_to_round_and_sum_to_one():
    bound = Theorem2(CONSTANTS, FEDERATION, INERTIA, LR)
    weights = bound.output_weights(50)
    assert sum(weights) == pytest.approx(1)
    assert weights[31] / weights[30] == pytest.approx(1 / (1 - bound.contraction))


def test_theorem_2_holds_only_from_its_least_round_on():
    bound = Theorem2(CONSTANTS, FEDERATION, INERTIA, LR)
    least = bound.least_rounds
    needed = 1 / (CONSTANTS.mu * bound.lam * 5 * LR)
    assert least - 1 < needed <= least
    bound.at(least)
    with pytest.raises(UserError, match=r"eta >= 1 / \(mu lambda K T\)"):
        bound.at(least - 1)


@pytest.mark.parametrize("theorem", [Theorem1, Theorem2])
@pytest.mark.parametrize("excess", [1.001, 1.1, 3.0, 50.0])
def test_rounds_to_an_accuracy_are_the_least_that_reach_it(theorem, excess):
    bound = theorem(CONSTANTS, FEDERATION, INERTIA, LR)
    accuracy = excess * bound.floor
    rounds = bound.rounds_to(accuracy)
    assert bound.at(rounds) <= accuracy * (1 + 1e-9)
    least = getattr(bound, "least_rounds", 1)
    assert rounds == least or bound.at(rounds - 1) > accuracy


@pytest.mark.parametrize("theorem", [Theorem1, Theorem2])
def test_an_accuracy_below_the_floor_is_an_error(theorem):
    bound = theorem(CONSTANTS, FEDERATION, INERTIA, LR)
    with pytest.raises(UserError, match=r"accuracy: .* is below the bound's floor"):
        bound.rounds_to(bound.floor)
    with pytest.raises(UserError, match="rounds: must be at least 1"):
        bound.at(0)


@pytest.mark.parametrize("theorem", [Theorem1, Theorem2])
@pytest.mark.parametrize("constant", ["L", "sigma", "G", "B", "C", "gap"])
def test_the_bound_grows_with_each_constant_of_the_problem(theorem, constant):
    bounds = []
    for factor in (1.0, 1.1, 1.2, 1.3):
        constants = replace(CONSTANTS, **{constant: factor * getattr(CONSTANTS, constant)})
        bounds.append(theorem(constants, FEDERATION, INERTIA, LR).at(20_000))
    assert bounds == sorted(set(bounds))


def test_the_floor_grows_with_k_and_rho_and_with_the_inertia_and_falls_with_s():
    floors = [Theorem1(CONSTANTS, replace(FEDERATION, steps=k), INERTIA, LR).floor for k in (1, 2, 5, 10)]
    assert floors == sorted(set(floors))
    floors = [Theorem1(CONSTANTS, FEDERATION, Inertia((0.6,), (rho,)), LR).floor for rho in (0, 0.1, 0.5, 1, 2)]
    assert floors == sorted(set(floors))
    floors = [Theorem1(CONSTANTS, FEDERATION, Inertia((alpha,)), LR).floor for alpha in (0, 0.1, 0.5, 0.9, 0.99)]
    assert floors == sorted(set(floors))
    floors = [Theorem1(CONSTANTS, replace(FEDERATION, active=s), INERTIA, LR).floor for s in (20, 10, 2, 1)]
    assert floors == sorted(set(floors))


def test_where_c_is_far_below_g_squared_inertia_lowers_the_bound():
    """The one case in which the bound favours inertia: 72 A K^2 G^2 outweighs 3 V C."""
    constants = ProblemConstants(L=1.0, sigma=0.0, G=10.0, gap=1.0, C=1e-3)
    floors = [
        Theorem1(constants, FederationShape(100, 100, 5), Inertia((alpha,)), 1e-3).floor for alpha in (0.9, 0.5, 0)
    ]
    assert floors == sorted(set(floors))


@pytest.mark.parametrize("inertia", WEIGHTS)
@pytest.mark.parametrize("rounds", [1, 1000, 10**7])
def test_no_learning_rate_of_a_grid_has_a_lower_bound_than_the_best(inertia, rounds):
    cap = largest_lr(WITHOUT_C, FEDERATION, inertia)
    grid = cap * np.logspace(-6, -1e-6, 3000)
    lowest = min(Theorem1(WITHOUT_C, FEDERATION, inertia, float(lr)).at(rounds) for lr in grid)
    assert best_bound(WITHOUT_C, FEDERATION, inertia, rounds) <= lowest
    assert 0 < best_lr(WITHOUT_C, FEDERATION, inertia, rounds) < cap


def test_the_learning_rate_of_remark_1_by_hand_and_as_the_limit_of_the_best():
    """S gap / (K T L (sigma^2 + 4 K G^2)) = 4 * 3 / (5 T * 2 * (2.25 + 20 * 0.49)) = 12 / (120.5 T)."""
    assert remark_1_lr(WITHOUT_C, FEDERATION, 1000) == pytest.approx(sqrt(12 / 120.5e3))
    rounds = 10**13
    best = best_lr(WITHOUT_C, FEDERATION, Inertia(), rounds)
    assert best == pytest.approx(remark_1_lr(WITHOUT_C, FEDERATION, rounds), rel=1e-3)


def test_the_best_bound_falls_as_one_over_the_root_of_s_k_t_where_noise_dominates():
    constants, far = replace(WITHOUT_C, G=0.0), 10**15
    one = best_bound(constants, FederationShape(100, 1, 1), Inertia(), far)
    assert best_bound(constants, FederationShape(100, 4, 4), Inertia(), far) == pytest.approx(one / 4, rel=1e-2)
    assert best_bound(constants, FederationShape(100, 4, 1), Inertia(), 4 * far) == pytest.approx(one / 4, rel=1e-2)


def test_more_local_steps_gain_nothing_where_heterogeneity_dominates():
    constants, far = replace(WITHOUT_C, sigma=0.0), 10**15
    one = best_bound(constants, FederationShape(100, 4, 1), Inertia(), far)
    assert best_bound(constants, FederationShape(100, 4, 16), Inertia(), far) == pytest.approx(one, rel=1e-2)


def test_the_learning_rate_of_remark_2_by_hand():
    """log(0.25 * 4 * 10^4) / (0.5 * 0.25 * 5 * 10^4); where the logarithm is below 1 it is the least admissible."""
    assert remark_2_lr(WITHOUT_C, FEDERATION, 10**4) == pytest.approx(log(1e4) / 6250)
    assert remark_2_lr(WITHOUT_C, FEDERATION, 2) == pytest.approx(1 / 1.25)
    with pytest.raises(UserError, match="mu: Remark 2 needs"):
        remark_2_lr(replace(WITHOUT_C, mu=None), FEDERATION, 100)


def test_the_best_learning_rate_under_pl_beats_a_grid_and_needs_enough_rounds():
    inertia, rounds = WEIGHTS[2], 20_000
    best = best_lr_under_pl(WITHOUT_C, FEDERATION, inertia, rounds)
    lowest = Theorem2(WITHOUT_C, FEDERATION, inertia, best).at(rounds)
    for other in best * np.logspace(-0.5, 0.1, 200):
        try:
            bound = Theorem2(WITHOUT_C, FEDERATION, inertia, float(other)).at(rounds)
        except UserError:
            continue
        assert lowest <= bound * (1 + 1e-4)
    with pytest.raises(UserError, match="rounds: 100 is too few for Theorem 2"):
        best_lr_under_pl(WITHOUT_C, FEDERATION, inertia, 100)


@pytest.mark.parametrize("accuracy", [5.0, 0.3])
def test_rounds_needed_are_the_least_at_the_best_learning_rate(accuracy):
    for inertia in WEIGHTS:
        rounds = rounds_needed(WITHOUT_C, FEDERATION, inertia, accuracy)
        assert best_bound(WITHOUT_C, FEDERATION, inertia, rounds) <= accuracy
        assert best_bound(WITHOUT_C, FEDERATION, inertia, rounds - 1) > accuracy


def test_an_accuracy_out_of_reach_is_an_error():
    with pytest.raises(UserError, match="accuracy: 1e-15 takes over"):
        rounds_needed(WITHOUT_C, FEDERATION, Inertia(), 1e-15)
    with pytest.raises(UserError, match="accuracy: must be above 0"):
        rounds_needed(WITHOUT_C, FEDERATION, Inertia(), 0)
