"""Which local rate the theorems recommend for a number of rounds, and how many rounds an accuracy takes at it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from fedmim.errors import UserError
from fedmim.theory.bounds import Theorem1, Theorem2
from fedmim.theory.constants import largest_rate
from fedmim.theory.problem import Federation, Inertia, Problem

MOST_ROUNDS = 10**15  # what takes more is out of reach


def remark_1_rate(problem: Problem, federation: Federation, rounds: int) -> float:
    """Remark 1's eta = O(sqrt(S / (K T))), with the constant that balances the terms of first order.

        eta = sqrt( S (f_0 - f*) / (K T L (sigma^2 + 4 K G^2)) )

    It gives (4 or so) sqrt((f_0 - f*) L (sigma^2 / K + 4 G^2) / (S T)): 1 / sqrt(S K T) where the noise dominates,
    1 / sqrt(S T) where heterogeneity does. It may be above the largest admissible rate while T is small.
    """
    k, s = federation.steps, federation.active
    spread = problem.sigma**2 + 4 * k * problem.G**2
    return math.sqrt(s * problem.gap / (k * rounds * problem.L * spread)) if spread else math.inf


def remark_2_rate(problem: Problem, federation: Federation, rounds: int, lam: float = 0.25) -> float:
    """Remark 2's eta = log(mu^2 S T) / (mu lambda K T), at least the 1 / (mu lambda K T) that Theorem 2 asks for."""
    if problem.mu is None:
        raise UserError("mu: Remark 2 needs the Polyak-Lojasiewicz constant; give mu")
    logarithm = math.log(problem.mu**2 * federation.active * rounds)
    return max(1.0, logarithm) / (problem.mu * lam * federation.steps * rounds)


def best_rate(problem: Problem, federation: Federation, inertia: Inertia, rounds: int) -> float:
    """The admissible rate with the lowest bound of Theorem 1 after T rounds.

    The bound is a convex function of the rate over a concave one, lambda, so it has one minimum.
    """
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

    cap = largest_rate(problem, federation, inertia)
    at = partial(_at, problem, federation, inertia, rounds)
    low = min(cap, remark_1_rate(problem, federation, rounds)) * 1e-9
    found = minimize_scalar(at, bounds=(math.log(low), math.log(cap)), method="bounded", options={"xatol": 1e-9})
    return math.exp(found.x)


def _at(problem: Problem, federation: Federation, inertia: Inertia, rounds: int, log_rate: float) -> float:
    return Theorem1(problem, federation, inertia, math.exp(log_rate)).at(rounds)


def best_bound(problem: Problem, federation: Federation, inertia: Inertia, rounds: int) -> float:
    """Theorem 1 after T rounds at the best rate for T."""
    return Theorem1(problem, federation, inertia, best_rate(problem, federation, inertia, rounds)).at(rounds)


def rounds_needed(problem: Problem, federation: Federation, inertia: Inertia, accuracy: float) -> int:
    """The least T with which Theorem 1, at the best rate for T, gives at most `accuracy`."""
    if not accuracy > 0:
        raise UserError(f"accuracy: must be above 0, got {accuracy}")
    return _least(lambda t: best_bound(problem, federation, inertia, t) <= accuracy, accuracy)


def best_rate_under_pl(problem: Problem, federation: Federation, inertia: Inertia, rounds: int) -> float:
    """The admissible rate with the lowest bound of Theorem 2 after T rounds; raises where T is too small for any."""
    bounds = _grid_of_theorem_2(problem, federation, inertia)
    admissible = [bound for bound in bounds if rounds >= bound.least_rounds]
    if not admissible:
        least = min(bound.least_rounds for bound in bounds)
        raise UserError(
            f"rounds: {rounds} is too few for Theorem 2; eta >= 1 / (mu lambda K T) needs at least {least} here"
        )
    return min(admissible, key=lambda bound: bound.at(rounds)).lr


def least_rounds_under_pl(problem: Problem, federation: Federation, inertia: Inertia) -> int:
    """The least T of which Theorem 2 speaks at some admissible rate."""
    return min(bound.least_rounds for bound in _grid_of_theorem_2(problem, federation, inertia))


def _grid_of_theorem_2(problem: Problem, federation: Federation, inertia: Inertia) -> list[Theorem2]:
    """Over eight decades of rates below the cap, half a per cent apart."""
    cap = largest_rate(problem, federation, inertia)
    return [Theorem2(problem, federation, inertia, cap * 10 ** (-8 * i / 4000)) for i in range(1, 4001)]


def _least(reached: Callable[[int], bool], accuracy: float) -> int:
    """The least T for which a condition holds that stays true once it is."""
    high = 1
    while not reached(high):
        high *= 2
        if high > MOST_ROUNDS:
            raise UserError(f"accuracy: {accuracy:g} takes over {MOST_ROUNDS:.0e} rounds by Theorem 1")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
