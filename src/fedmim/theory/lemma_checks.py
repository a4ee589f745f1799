"""The inequalities in the proofs of the theorems, each measured on a run as the ratio left side / right side.

An inequality holds if the ratio is at most 1; the distance to 1 is its slack. Inequalities that hold for every path are
measured by their worst round. The others hold in expectation over noise and client sampling; for them, both sides are
summed over all rounds first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedmim.theory.bounds import Theorem1
from fedmim.theory.constants import (
    FederationShape,
    Inertia,
    ProblemConstants,
    increments,
    largest_lr,
    lr_caps,
    m_constants,
    p_constants,
)
from fedmim.theory.quadratics import QuadraticProblem
from fedmim.theory.synthetic import NonConvexProblem, SyntheticProblem
from fedmim.theory.synthetic_runs import SyntheticRun

LEMMA_5 = "Lemma 5: u moves by plain gradients (residual)"
LEMMA_6 = "Lemma 6: increments within C"
LAG = "Lemma 7: look-ahead and lag of u"
LEMMA_7 = "Lemma 7: local gradients"
LEMMA_8 = "Lemma 8: drift of the clients"


def lemma_ratios(run: SyntheticRun, constants: ProblemConstants) -> dict[str, float]:
    """The ratio of each lemma on a run with recorded gradients and a learning rate of at most 1 / (4 L K sqrt(A))."""
    assert run.points is not None
    assert run.taken is not None
    lr, k, s, a = run.lr, run.federation.steps, run.federation.active, run.inertia.A
    big_l, sigma2, g2, b2, eta2 = constants.L, constants.sigma**2, constants.G**2, constants.B**2, lr**2
    x, u = run.models[:-1], run.auxiliary[:-1]  # (T, d)
    deltas, by_p, by_m = _past_increments(run, constants)
    m2 = _weighted_past(deltas, run.inertia.beta)  # (T, d)
    at_u = run.at_u

    iterates = run.points + m2[:, None, None]  # x_{i,k}, (T, K, S, d)
    local = _of_clients(run, run.points)
    local_at_u = _of_clients(run, u[:, None, None].expand_as(run.points))
    mean = run.taken.mean((1, 2))  # (T, d)
    drift = _square(iterates - x[:, None, None]).mean((1, 2))

    moved = run.auxiliary[1:] - (u - lr * k * mean)
    return {
        LEMMA_5: float(moved.norm(dim=1).max() / (lr * k * mean.norm(dim=1).max())),
        LEMMA_6: _worst(_square(deltas[1:]), (eta2 * _square(mean)).cummax(0).values),
        LAG: _worst(_square(m2) + _square(x - u), by_p),
        LEMMA_7: _overall(
            _square(local).mean((1, 2)), 4 * big_l**2 * drift + 4 * big_l**2 * by_p + 4 * g2 + 4 * b2 * at_u
        ),
        LEMMA_8: _overall(
            drift,
            3 * k * a**2 * eta2 * sigma2 + 6 * k**2 * by_m + 24 * a * k**2 * eta2 * (g2 + b2 * at_u),
        ),
        "Lemma 9: mean of the gradients": _overall(
            _square(mean),
            16 * big_l**2 * (6 * k**2 * by_m + by_p)
            + (8 * g2 + 2 * sigma2 / k) / s
            + 48 * k * (big_l * a) ** 2 * eta2 * sigma2
            + 384 * a * (big_l * k) ** 2 * eta2 * g2
            + 64 * b2 * at_u,
        ),
        "Theorem 1 (b): local gradients against those at u": _overall(
            _square(local - local_at_u).mean((1, 2)), 3 * big_l**2 * (drift + by_p)
        ),
    }


def theorem_ratios(run: SyntheticRun, constants: ProblemConstants) -> dict[str, float]:
    """The ratios of Theorem 1 on a run at an admissible learning rate: before C is used, and for the final bound.

    The first is lambda eta K sum_t ||grad f(u_t)||^2 divided by the sum of the descent of f and the terms of the floor,
    with the measured increments. The second uses the measured C.
    """
    lr, k, rounds = run.lr, run.federation.steps, len(run.clients)
    _, by_p, by_m = _past_increments(run, constants)
    by_increments = 6 * k**2 * by_m + by_p
    at_u = run.at_u
    bound = Theorem1(replace(constants, C=run.gradient_bound), run.federation, run.inertia, lr)
    assert bound.lam is not None
    fixed = (bound.floor - bound.terms["inertia"]) * bound.lam
    allowed = lr * k * (rounds * fixed + 3 * constants.L**2 * float(by_increments.sum()))
    descent = float(run.problem.value(run.auxiliary[0]) - run.problem.value(run.auxiliary[-1]))
    return {
        "Theorem 1 (d): descent, summed over rounds": bound.lam * lr * k * float(at_u.sum()) / (descent + allowed),
        "Theorem 1: the bound": float(at_u.min()) / bound.at(rounds),
    }


@dataclass(frozen=True)
class RandomCase:
    """A problem with exact constants, a federation, weights, and learning rates for the lemmas and the theorems."""

    problem: SyntheticProblem
    constants: ProblemConstants
    federation: FederationShape
    inertia: Inertia
    lemma_lr: float
    """At most 1 / (4 L K sqrt(A)), which may be over 16 times what the theorems allow."""
    theorem_lr: float


def random_case(seed: int) -> RandomCase:
    """A random case from a seed: convex or not, with or without noise, all clients or some, J from 0 to 3."""
    draw = random.Random(seed)
    clients, steps = draw.randint(2, 16), draw.randint(1, 8)
    active = clients if draw.random() < 0.3 else draw.randint(1, clients)
    dimension, spread, sigma = draw.randint(1, 6), draw.choice((0.0, 0.5, 1.0, 3.0)), draw.choice((0.0, 0.3, 2.0))
    kind: type[QuadraticProblem | NonConvexProblem] = draw.choice((QuadraticProblem, NonConvexProblem))
    problem = kind.draw(clients, dimension, spread, sigma, seed=seed)
    memory = draw.randint(0, 3)
    raw = [draw.random() for _ in range(memory)]
    share = draw.choice((0.0, 0.5, 0.9, 0.98)) / (sum(raw) or 1)
    beta = tuple(draw.uniform(0, 1) for _ in range(draw.randint(0, memory)))
    inertia = Inertia(tuple(share * weight for weight in raw), beta)
    constants, federation = problem.constants(), FederationShape(clients, active, steps)
    caps = lr_caps(constants, federation, inertia)
    return RandomCase(
        problem,
        constants,
        federation,
        inertia,
        lemma_lr=draw.uniform(0.05, 1) * caps["eta <= 1 / (4 L K sqrt(A))"],
        theorem_lr=draw.uniform(0.05, 0.95) * largest_lr(constants, federation, inertia),
    )


def _past_increments(run: SyntheticRun, constants: ProblemConstants) -> tuple[Tensor, Tensor, Tensor]:
    """delta_0 .. delta_T (T + 1, d), and for each round sum_j P_j ||delta_{t-j}||^2 and the same sum with M_j, (T,)."""
    steps = run.federation.steps
    deltas = torch.stack(increments(list(run.models), steps))
    squares = _square(deltas)
    by_p = _weighted_past(squares, p_constants(run.inertia, steps))
    return deltas, by_p, _weighted_past(squares, m_constants(constants, run.inertia, steps, run.lr))


def _weighted_past(values: Tensor, weights: tuple[float, ...]) -> Tensor:
    """sum_j weight_j v_{t-j} for t = 0 .. T-1, from v_0 .. v_T, with zeros before the start."""
    total = torch.zeros_like(values[:-1])
    for j, weight in enumerate(weights):
        total[j:] += weight * values[: max(0, len(total) - j)]
    return total


def _of_clients(run: SyntheticRun, points: Tensor) -> Tensor:
    """grad f_i without noise, at the points of each round's clients."""
    return torch.stack([run.problem.gradients(at, who) for at, who in zip(points, run.clients, strict=True)])


def _square(vectors: Tensor) -> Tensor:
    return vectors.square().sum(-1)


def _worst(left: Tensor, right: Tensor) -> float:
    """The largest ratio over all rounds; 0 / 0 is no violation."""
    tiny = 1e-12 * float(right.max())
    return float(((left + tiny) / (right + tiny))[left > 0].max()) if bool((left > 0).any()) else 0.0


def _overall(left: Tensor, right: Tensor) -> float:
    return float(left.sum() / right.sum()) if float(right.sum()) > 0 else 0.0
