"""The inequalities that the theorems are made of, each measured on a run as a ratio: left side over right side.

Below 1 the inequality holds; how far below is its slack. Those that hold on every path are given by their worst
round. The others hold in expectation over noise and client sampling, and are given as the sum over all rounds of the
left side over that of the right.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedmim.theory.auxiliary import increments
from fedmim.theory.bounds import Theorem1
from fedmim.theory.constants import m_constants, p_constants
from fedmim.theory.problem import Federation, Inertia, Problem
from fedmim.theory.synthetic import Synthetic
from fedmim.theory.walking import Walk

LEMMA_5 = "Lemma 5: u moves by plain gradients (residual)"
LEMMA_6 = "Lemma 6: increments within C"
LAG = "Lemma 7: look-ahead and lag of u"
LEMMA_7 = "Lemma 7: local gradients"
LEMMA_8 = "Lemma 8: drift of the clients"
LEMMA_9 = "Lemma 9: mean of the gradients"
AT_U = "Theorem 1 (b): local gradients against those at u"
SUMMED = "Theorem 1 (d): descent, summed over rounds"
BOUND = "Theorem 1: the bound"


def lemma_ratios(
    run: Walk, synthetic: Synthetic, problem: Problem, federation: Federation, inertia: Inertia, lr: float
) -> dict[str, float]:
    """Each lemma's ratio on a recorded run; the rate must be at most 1 / (4 L K sqrt(A))."""
    assert run.points is not None
    assert run.taken is not None
    k, s, a = federation.steps, federation.active, inertia.A
    big_l, sigma2, g2, b2 = problem.L, problem.sigma**2, problem.G**2, problem.B**2
    rounds = len(run.taken)
    x, u = run.models[:-1], run.ahead[:-1]  # (T, d)
    past = Increments(increments(list(run.models), k), rounds)
    by_p = past.weighted_squares(p_constants(inertia, k))  # sum_j P_j ||delta_{t-j}||^2, (T,)
    by_m = past.weighted_squares(m_constants(problem, inertia, k, lr))
    m2 = past.mixed(inertia.beta)  # (T, d)
    at_u = _square(synthetic.gradient(u))  # ||grad f(u_t)||^2, (T,)

    iterates = run.points + m2[:, None, None]  # x_{i,k}, (T, K, S, d)
    local = _of_clients(synthetic, run.points, run.clients)
    local_at_u = _of_clients(synthetic, u[:, None, None].expand_as(run.points), run.clients)
    mean = run.taken.mean((1, 2))  # (T, d)
    drift = _square(iterates - x[:, None, None]).mean((1, 2))

    moved = run.ahead[1:] - (u - lr * k * mean)
    lag_left = _square(m2) + _square(x - u)
    largest_mean = (lr**2 * _square(mean)).cummax(0).values
    after = _square(past.all[1:])
    eta2 = lr**2
    return {
        LEMMA_5: float(moved.norm(dim=1).max() / (lr * k * mean.norm(dim=1).max())),
        LEMMA_6: _worst(after, largest_mean),
        LAG: _worst(lag_left, by_p),
        LEMMA_7: _overall(
            _square(local).mean((1, 2)), 4 * big_l**2 * drift + 4 * big_l**2 * by_p + 4 * g2 + 4 * b2 * at_u
        ),
        LEMMA_8: _overall(
            drift,
            3 * k * a**2 * eta2 * sigma2 + 6 * k**2 * by_m + 24 * a * k**2 * eta2 * (g2 + b2 * at_u),
        ),
        LEMMA_9: _overall(
            _square(mean),
            16 * big_l**2 * (6 * k**2 * by_m + by_p)
            + (8 * g2 + 2 * sigma2 / k) / s
            + 48 * k * (big_l * a) ** 2 * eta2 * sigma2
            + 384 * a * (big_l * k) ** 2 * eta2 * g2
            + 64 * b2 * at_u,
        ),
        AT_U: _overall(_square(local - local_at_u).mean((1, 2)), 3 * big_l**2 * (drift + by_p)),
    }


def theorem_ratios(
    run: Walk, synthetic: Synthetic, problem: Problem, federation: Federation, inertia: Inertia, lr: float
) -> dict[str, float]:
    """Theorem 1 on a run, at a rate that it admits: summed up before the bound C comes in, and as it stands.

    The first is lambda eta K sum_t ||grad f(u_t)||^2 against what the descent of f and the floor's terms, with the
    increments as measured, allow. The second has C as measured.
    """
    k = federation.steps
    rounds = len(run.ahead) - 1
    u = run.ahead[:-1]
    past = Increments(increments(list(run.models), k), rounds)
    by_increments = 6 * k**2 * past.weighted_squares(m_constants(problem, inertia, k, lr))
    by_increments += past.weighted_squares(p_constants(inertia, k))
    at_u = _square(synthetic.gradient(u))
    measured = replace(problem, C=float(_square(mean_gradients(run.ahead, lr, k)).max()))
    bound = Theorem1(measured, federation, inertia, lr)
    assert bound.lam is not None
    fixed = (bound.floor - bound.terms["inertia"]) * bound.lam
    allowed = lr * k * (rounds * fixed + 3 * problem.L**2 * float(by_increments.sum()))
    descent = float(synthetic.value(run.ahead[0]) - synthetic.value(run.ahead[-1]))
    return {
        SUMMED: bound.lam * lr * k * float(at_u.sum()) / (descent + allowed),
        BOUND: float(at_u.min()) / bound.at(rounds),
    }


def mean_gradients(ahead: Tensor, lr: float, steps: float) -> Tensor:
    """(1/SK) sum_i sum_k g of every round, from u_0 .. u_T alone (Lemma 5), (T, d)."""
    return (ahead[:-1] - ahead[1:]) / (lr * steps)


class Increments:
    """delta_t of a run, with zeros before the start."""

    def __init__(self, deltas: list[Tensor], rounds: int) -> None:

        self.all = torch.stack(deltas)  # delta_0 .. delta_T, (T + 1, d)
        self.rounds = rounds

    def back(self, j: int) -> Tensor:
        """delta_{t-j} for every round t, (T, d)."""
        shifted = self.all.roll(j, 0)[: self.rounds].clone()
        shifted[:j] = 0
        return shifted

    def mixed(self, weights: tuple[float, ...]) -> Tensor:
        """sum_j weight_j delta_{t-j}."""
        terms = [weight * self.back(j) for j, weight in enumerate(weights)]
        return sum(terms, start=self.all[: self.rounds] * 0)

    def weighted_squares(self, weights: tuple[float, ...]) -> Tensor:
        """sum_j weight_j ||delta_{t-j}||^2."""
        terms = [weight * _square(self.back(j)) for j, weight in enumerate(weights)]
        return sum(terms, start=_square(self.all[: self.rounds]) * 0)


def _of_clients(synthetic: Synthetic, points: Tensor, clients: list[tuple[int, ...]]) -> Tensor:
    """grad f_i without noise at each round's clients' points."""
    return torch.stack([synthetic.gradients(at, who) for at, who in zip(points, clients, strict=True)])


def _square(vectors: Tensor) -> Tensor:
    return vectors.square().sum(-1)


def _worst(left: Tensor, right: Tensor) -> float:
    """The largest ratio of all rounds; 0 against 0 is no violation."""
    tiny = 1e-12 * float(right.max())
    return float(((left + tiny) / (right + tiny))[left > 0].max()) if bool((left > 0).any()) else 0.0


def _overall(left: Tensor, right: Tensor) -> float:
    return float(left.sum() / right.sum()) if float(right.sum()) > 0 else 0.0
