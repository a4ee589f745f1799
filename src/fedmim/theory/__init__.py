"""Theorems 1 and 2 of the paper as a tool: constants, rate caps, bounds, and the problems on which they are seen.

The names here need no torch. `fedmim.theory.measuring` estimates the constants of a task, `.recommendation` says
what they advise, `.quadratics` has the exact analysis of quadratics, `.experiments` shows the theorems at work.
"""

from fedmim.theory.auxiliary import auxiliary_sequence, increments
from fedmim.theory.bounds import Theorem1, Theorem2
from fedmim.theory.constants import (
    largest_lambda,
    largest_rate,
    look_ahead,
    m_constants,
    own_weight,
    p_constants,
    rate_caps,
    v_constant,
)
from fedmim.theory.problem import Federation, Inertia, Problem
from fedmim.theory.rates import (
    best_bound,
    best_rate,
    best_rate_under_pl,
    least_rounds_under_pl,
    remark_1_rate,
    remark_2_rate,
    rounds_needed,
)

__all__ = [
    "Federation",
    "Inertia",
    "Problem",
    "Theorem1",
    "Theorem2",
    "auxiliary_sequence",
    "best_bound",
    "best_rate",
    "best_rate_under_pl",
    "increments",
    "largest_lambda",
    "largest_rate",
    "least_rounds_under_pl",
    "look_ahead",
    "m_constants",
    "own_weight",
    "p_constants",
    "rate_caps",
    "remark_1_rate",
    "remark_2_rate",
    "rounds_needed",
    "v_constant",
]
