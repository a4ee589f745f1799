"""Theorems 1 and 2 of the paper: constants, conditions on the learning rate, and bounds.

This module does not import torch. `fedmim.theory.measurement` estimates the constants of a task, `.recommendation`
turns them into advice, `.synthetic` and `.quadratics` define problems with known constants, `.lemma_checks` measures
the inequalities of the proof, and `.demonstrations` shows the theorems in simulated runs.
"""

from fedmim.theory.bounds import (
    Theorem1,
    Theorem2,
    best_bound,
    best_lr,
    best_lr_under_pl,
    least_rounds_under_pl,
    remark_1_lr,
    remark_2_lr,
    rounds_needed,
)
from fedmim.theory.constants import (
    FederationShape,
    Inertia,
    ProblemConstants,
    auxiliary_sequence,
    increments,
    largest_lambda,
    largest_lr,
    lr_caps,
    m_constants,
    p_constants,
    v_constant,
)

__all__ = [
    "FederationShape",
    "Inertia",
    "ProblemConstants",
    "Theorem1",
    "Theorem2",
    "auxiliary_sequence",
    "best_bound",
    "best_lr",
    "best_lr_under_pl",
    "increments",
    "largest_lambda",
    "largest_lr",
    "least_rounds_under_pl",
    "lr_caps",
    "m_constants",
    "p_constants",
    "remark_1_lr",
    "remark_2_lr",
    "rounds_needed",
    "v_constant",
]
