"""The advice follows from the theorem and from the analysis of quadratics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedmim.theory import FederationShape, Inertia, ProblemConstants, best_bound, best_lr, largest_lr
from fedmim.theory.measurement import MeasuredConstants, MeasuredPoint, measure
from fedmim.theory.quadratics import QuadraticProblem, resting_point
from fedmim.theory.recommendation import best_steps, drift_of_fedavg, noise_of_a_round, own_weight_for, recommend
from fedmim.theory.synthetic_runs import plain_settings

INERTIA = Inertia((0.6, 0.3), (0.9, 0.1))


def measured(lr=0.01, drift=4.0, noise=1.0, local=3.0, active=5, response=0.6):
    points = (
        MeasuredPoint(0, 2.0, 1.0, 4.0, noise, 2.0, response),
        MeasuredPoint(9, 0.5, 0.1, local, noise, 1.5, response / 2),
    )
    return MeasuredConstants(points, C=2.0, drift=drift, federation=FederationShape(20, active, 8), lr=lr)


def test_eta_and_the_constants_are_those_with_the_lowest_bound():
    found = measured()
    advised = recommend(found, INERTIA, 1000)
    others = [best_bound(found.constants(b), found.federation, Inertia(), 1000) for b in found.choices_of_b()]
    assert best_bound(advised.constants, found.federation, Inertia(), 1000) == min(others)
    assert advised.lr == best_lr(advised.constants, found.federation, INERTIA, 1000)
    assert advised.lr < largest_lr(advised.constants, found.federation, INERTIA)


def test_k_ends_near_its_knee_where_there_are_rounds_enough():
    """sigma^2 / (4 G^2) = 25: doubling K beyond that lowers sqrt(sigma^2 / K + 4 G^2) by less and less."""
    constants, federation, rounds = ProblemConstants(sigma=10.0, G=1.0), FederationShape(100, 10, 5), 10**12
    steps = best_steps(constants, federation, Inertia(), rounds)
    assert 32 <= steps <= 128
    lead = {k: (100 / k + 4) ** 0.5 for k in (steps // 2, steps, 2 * steps)}
    assert lead[steps] < 0.95 * lead[steps // 2]
    assert lead[2 * steps] > 0.95 * lead[steps]


def test_k_is_one_where_there_is_no_noise_and_many_where_there_is_no_heterogeneity():
    federation, rounds = FederationShape(100, 10, 5), 10**12
    assert best_steps(ProblemConstants(sigma=0.0, G=1.0), federation, Inertia(), rounds) == 1
    assert best_steps(ProblemConstants(sigma=30.0, G=0.0), federation, Inertia(), rounds) > 100


def test_the_noise_of_a_round_by_hand():
    """(3 - 0.1) / 5 * 15 / 19 from the sampling of clients, 1 / (5 * 8) from the minibatches."""
    assert noise_of_a_round(measured()) == pytest.approx((2.9 / 5 * 15 / 19 + 1 / 40) ** 0.5)
    assert noise_of_a_round(measured(active=20)) == pytest.approx((1 / 160) ** 0.5)


def test_a_keeps_the_drift_within_the_noise():
    """0.01 * 7 / 2 * 400 = 14 of drift at FedAvg's learning rate."""
    found = measured(drift=400.0)
    assert drift_of_fedavg(found, 0.01) == pytest.approx(14.0)
    assert own_weight_for(found) == pytest.approx(noise_of_a_round(found) / 14)
    assert own_weight_for(measured(drift=1.0)) == own_weight_for(measured(drift=0.0)) == 1.0
    assert own_weight_for(measured(lr=0.1)) is None  # above 1 / (8 * 2)


def test_the_drift_is_where_fedavg_rests_on_quadratics():
    """To first order in the learning rate, measured at x* and against the exact resting point."""
    problem, lr = QuadraticProblem.draw(clients=8, dimension=3), 1e-3
    settings = plain_settings(FederationShape(8, 8, 8), lr, rounds=2)
    found = measure(replace(problem, start=problem.optimum).task(), settings, Inertia(), points=2, iterations=2)
    rest = resting_point(problem, lr, 8)
    assert drift_of_fedavg(found, lr) == pytest.approx(float(problem.gradient(rest).norm()), rel=0.02)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (measured(), "alpha: not needed against drift"),
        (measured(drift=400.0), "alpha: sum of about 0.9"),
        (measured(lr=0.5), "alpha: no recommendation at the run's learning rate 0.5"),
        (measured(noise=0.0, active=20), "alpha: no recommendation, because a round has no noise"),  # not A = 0
    ],
)
def test_each_advice_says_what_and_why(found, said):
    advice = recommend(found, INERTIA, 500).advice
    assert [each.what.split()[0] for each in advice] == ["eta", "alpha:", "ahead", "eta", "K", "alpha,"]
    assert advice[1].what.startswith(said)
    assert "safe, not that it helps" in advice[5].why


@pytest.mark.parametrize(
    ("response", "alpha", "what", "why"),
    [
        (0.6, (0.9,), "ahead = 1 for", "at most 60% of a displacement, over points and directions. Up to"),
        (1.1, (0.9,), "ahead = 0 for", "Where a round takes back nearly everything or more, look-ahead adds noise"),
        (0.6, (), "ahead = 0 for", "Without inertia there is nothing to look ahead along"),
    ],
)
def test_the_look_ahead_follows_from_the_largest_response(response, alpha, what, why):
    advice = recommend(measured(response=response), Inertia(alpha), 500).practice[2]
    assert advice.what.startswith(what)
    assert why in advice.why


def test_what_works_in_practice_comes_before_the_guarantee():
    found = measured()
    advised = recommend(found, INERTIA, 500)
    assert advised.advice == advised.practice + advised.guarantees
    assert advised.practice[0].what == "eta = 0.01, the run's learning rate, trains: f went from 2 to 0.5 in 9 rounds"
    cap = largest_lr(advised.constants, found.federation, INERTIA)
    assert f"The guarantee below holds up to {cap:.2g} only" in advised.practice[0].why
    assert f"the run's learning rate is {found.lr / cap:.2g} times that" in advised.practice[0].why
    assert advised.guarantees[0].what.startswith(f"eta = {advised.lr:.2g} ")
    worse = replace(found, points=found.points[::-1])
    assert "does not train: f went from 0.5 to 2" in recommend(worse, INERTIA, 500).practice[0].what


def test_the_learning_rate_says_whether_the_start_or_the_floor_rules():
    few, many = (recommend(measured(), INERTIA, rounds).guarantees[0].why for rounds in (10, 10**9))
    assert "as large as the theorem allows" in few
    assert "balances the start" in many
