"""The rates that the theorems recommend, and the rounds they then need."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest

from fedmim.errors import UserError
from fedmim.theory import (
    Federation,
    Inertia,
    Problem,
    Theorem1,
    Theorem2,
    best_bound,
    best_rate,
    best_rate_under_pl,
    largest_rate,
    remark_1_rate,
    remark_2_rate,
    rounds_needed,
)

PROBLEM = Problem(L=2.0, sigma=1.5, G=0.7, B=1.0, gap=3.0, mu=0.5)
FEDERATION = Federation(clients=20, active=4, steps=5)
WEIGHTS = [Inertia(), Inertia((0.9,)), Inertia((0.6, 0.3), (0.9, 0.1))]


@pytest.mark.parametrize("inertia", WEIGHTS)
@pytest.mark.parametrize("rounds", [1, 1000, 10**7])
def test_no_rate_of_a_grid_has_a_lower_bound_than_the_best_rate(inertia, rounds):
    cap = largest_rate(PROBLEM, FEDERATION, inertia)
    grid = cap * np.logspace(-6, -1e-6, 3000)
    lowest = min(Theorem1(PROBLEM, FEDERATION, inertia, float(rate)).at(rounds) for rate in grid)
    assert best_bound(PROBLEM, FEDERATION, inertia, rounds) <= lowest
    assert 0 < best_rate(PROBLEM, FEDERATION, inertia, rounds) < cap


def test_the_rate_of_remark_1_by_hand_and_as_the_limit_of_the_best_rate():
    """S gap / (K T L (sigma^2 + 4 K G^2)) = 4 * 3 / (5 T * 2 * (2.25 + 20 * 0.49)) = 12 / (120.5 T)."""
    assert remark_1_rate(PROBLEM, FEDERATION, 1000) == pytest.approx(sqrt(12 / 120.5e3))
    rounds = 10**13
    best = best_rate(PROBLEM, FEDERATION, Inertia(), rounds)
    assert best == pytest.approx(remark_1_rate(PROBLEM, FEDERATION, rounds), rel=1e-3)


def test_the_best_bound_falls_as_one_over_the_root_of_s_k_t_where_noise_dominates():
    problem, far = replace(PROBLEM, G=0.0), 10**15
    one = best_bound(problem, Federation(100, 1, 1), Inertia(), far)
    assert best_bound(problem, Federation(100, 4, 4), Inertia(), far) == pytest.approx(one / 4, rel=1e-2)
    assert best_bound(problem, Federation(100, 4, 1), Inertia(), 4 * far) == pytest.approx(one / 4, rel=1e-2)


def test_more_local_steps_gain_nothing_where_heterogeneity_dominates():
    problem, far = replace(PROBLEM, sigma=0.0), 10**15
    one = best_bound(problem, Federation(100, 4, 1), Inertia(), far)
    assert best_bound(problem, Federation(100, 4, 16), Inertia(), far) == pytest.approx(one, rel=1e-2)


def test_the_rate_of_remark_2_by_hand():
    """log(0.25 * 4 * 10^4) / (0.5 * 0.25 * 5 * 10^4); where the logarithm is below 1 it is the least admissible."""
    assert remark_2_rate(PROBLEM, FEDERATION, 10**4) == pytest.approx(log(1e4) / 6250)
    assert remark_2_rate(PROBLEM, FEDERATION, 2) == pytest.approx(1 / 1.25)
    with pytest.raises(UserError, match="mu: Remark 2 needs"):
        remark_2_rate(replace(PROBLEM, mu=None), FEDERATION, 100)


def test_the_best_rate_under_pl_beats_a_grid_and_needs_enough_rounds():
    inertia, rounds = WEIGHTS[2], 20_000
    rate = best_rate_under_pl(PROBLEM, FEDERATION, inertia, rounds)
    lowest = Theorem2(PROBLEM, FEDERATION, inertia, rate).at(rounds)
    for other in rate * np.logspace(-0.5, 0.1, 200):
        try:
            bound = Theorem2(PROBLEM, FEDERATION, inertia, float(other)).at(rounds)
        except UserError:
            continue
        assert lowest <= bound * (1 + 1e-4)
    with pytest.raises(UserError, match="rounds: 100 is too few for Theorem 2"):
        best_rate_under_pl(PROBLEM, FEDERATION, inertia, 100)


@pytest.mark.parametrize("accuracy", [5.0, 0.3])
def test_rounds_needed_are_the_least_at_the_best_rate(accuracy):
    for inertia in WEIGHTS:
        rounds = rounds_needed(PROBLEM, FEDERATION, inertia, accuracy)
        assert best_bound(PROBLEM, FEDERATION, inertia, rounds) <= accuracy
        assert best_bound(PROBLEM, FEDERATION, inertia, rounds - 1) > accuracy


def test_an_accuracy_out_of_reach_is_refused():
    with pytest.raises(UserError, match="accuracy: 1e-15 takes over"):
        rounds_needed(PROBLEM, FEDERATION, Inertia(), 1e-15)
    with pytest.raises(UserError, match="accuracy: must be above 0"):
        rounds_needed(PROBLEM, FEDERATION, Inertia(), 0)
