"""Epsilon against the exact Gaussian mechanism, closed forms, integrals and a published bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from fedmim.simulation.privacy import _one_round, epsilon


def exact_epsilon(sigma, delta):
    """Of the Gaussian mechanism (Balle and Wang 2018, Theorem 8); `sigma` relative to the sensitivity."""

    def excess(eps):
        a, b = 1 / (2 * sigma), eps * sigma
        return norm.cdf(a - b) - math.exp(eps + norm.logcdf(-a - b)) - delta

    return brentq(excess, 0.0, 1e4) if excess(0.0) > 0 else 0.0


@pytest.mark.parametrize("z", [1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("rounds", [1, 20, 300])
def test_without_sampling_it_is_the_renyi_bound_of_the_gaussian_mechanism(z, rounds):
    """T rounds with noise z C and sensitivity 2 C are one Gaussian mechanism with sigma = z / (2 sqrt(T))."""
    sigma, delta = z / (2 * math.sqrt(rounds)), 1e-5
    orders = np.linspace(1.01, 300, 200_000)
    # Renyi differential privacy a / (2 sigma^2) at order a, converted as in Canonne et al. 2020, Proposition 12.
    closed = orders / (2 * sigma**2) + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    found = epsilon(z, 50, 50, rounds, delta)
    assert found == pytest.approx(closed.min(), rel=0.02)
    assert exact_epsilon(sigma, delta) <= found <= 1.3 * exact_epsilon(sigma, delta) + 0.01


def renyi_of_mixtures(q, sigma, order):
    """Of two worst neighbours by integration: the replaced client is sampled with probability q and sends C or -C."""

    def log_density(x, sign):
        idle, sampled = norm.logpdf(x, 0, sigma), norm.logpdf(x, 0.5 * sign, sigma)
        return np.logaddexp(math.log1p(-q) + idle, math.log(q) + sampled)

    def integrand(x):
        return math.exp(order * log_density(x, 1) + (1 - order) * log_density(x, -1))

    value, _ = quad(integrand, -30 * sigma, 30 * sigma + 0.5 * order, limit=500, points=[0.0, 0.5 * order])
    return math.log(value) / (order - 1)


def wang_theorem_9(q, sigma, order):
    """Wang et al. 2019, Theorem 9, for a mechanism with Renyi differential privacy a / (2 sigma^2)."""

    def renyi(a):
        return a / (2 * sigma**2)

    total = 1 + q**2 * math.comb(order, 2) * min(4 * math.expm1(renyi(2)), 2 * math.exp(renyi(2)))
    total += sum(2 * q**j * math.comb(order, j) * math.exp((j - 1) * renyi(j)) for j in range(3, order + 1))
    return math.log(total) / (order - 1)


@pytest.mark.parametrize(("z", "planned", "clients"), [(4.0, 10, 100), (2.0, 20, 1000), (6.0, 5, 20)])
def test_with_sampling_it_lies_between_the_worst_neighbours_known_and_the_published_bound(z, planned, clients):
    found = dict(zip(*_one_round(z, planned, clients), strict=True))
    q, sigma = planned / clients, z / 2  # relative to the sensitivity 2 C
    for order in (2, 3, 5, 8):
        lowest = renyi_of_mixtures(q, sigma, order)
        published = min(wang_theorem_9(q, sigma, order), order / (2 * sigma**2))
        assert lowest * (1 - 1e-6) <= found[order] <= published * (1 + 1e-9)


def test_sampling_never_costs_privacy_and_more_rounds_or_less_noise_do():
    assert epsilon(0.5, 50, 100, 10, 1e-5) <= epsilon(0.5, 100, 100, 10, 1e-5)
    assert epsilon(4.0, 10, 1000, 10, 1e-5) < 0.3 * epsilon(4.0, 1000, 1000, 10, 1e-5)
    grows = [epsilon(2.0, 10, 100, rounds, 1e-5) for rounds in (1, 2, 10, 100)]
    assert grows == sorted(grows)
    assert epsilon(1.0, 10, 100, 10, 1e-5) > epsilon(2.0, 10, 100, 10, 1e-5) > epsilon(2.0, 10, 100, 10, 1e-3)


def test_a_known_value():
    """sigma = 1 with delta = 1e-5 is epsilon 4.377 exactly (Balle and Wang 2018), and somewhat more by this bound."""
    assert exact_epsilon(1.0, 1e-5) == pytest.approx(4.377, abs=2e-3)
    assert 4.377 < epsilon(2.0, 10, 10, 1, 1e-5) < 4.9
