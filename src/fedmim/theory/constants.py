"""The constants of the appendix: P_j, M_j and V, the caps on the local rate, and lambda.

    P_j = rho beta_j + K^2 J (1-A)^2 / A^2                   (Lemma 7; Q_j there is 4 L^2 P_j)
    M_j = alpha_j + 4 A L^2 eta^2 P_j                        (Lemma 8)
    V   = 6 (1-A) K^2 + (27 A / 32 + 1)(rho^2 + K^2 J^2 (1-A)^2 / A^2)   >=  sum_j (6 K^2 M_j + P_j)

eta is the local rate, K the local steps. Liu et al. 2023, arXiv 2302.05726, appendix.
"""

from __future__ import annotations

from math import inf, sqrt

from fedmim.errors import UserError
from fedmim.theory.problem import Federation, Inertia, Problem


def own_weight(alpha: tuple[float, ...]) -> float:
    """A = 1 - sum_j alpha_j."""
    return Inertia(alpha).A


def look_ahead(beta: tuple[float, ...]) -> float:
    """rho = sum_j beta_j."""
    return Inertia(beta=beta).rho


def p_constants(inertia: Inertia, steps: int) -> tuple[float, ...]:
    """P_j, j = 0 .. J-1: how far increment j takes the point of the gradient, x - m2, from u_t."""
    lag = steps**2 * inertia.J * ((1 - inertia.A) / inertia.A) ** 2
    return tuple(inertia.rho * beta + lag for beta in _padded(inertia.beta, inertia.J))


def m_constants(problem: Problem, inertia: Inertia, steps: int, lr: float) -> tuple[float, ...]:
    """M_j, j = 0 .. J-1: how much increment j adds to the clients' drift."""
    alphas = _padded(inertia.alpha, inertia.J)
    factor = 4 * inertia.A * (problem.L * lr) ** 2
    return tuple(alpha + factor * p for alpha, p in zip(alphas, p_constants(inertia, steps), strict=True))


def v_constant(inertia: Inertia, steps: int) -> float:
    """V, which bounds sum_j (6 K^2 M_j + P_j) for every rate below 3 / (16 K L); 0 for FedAvg."""
    a, k = inertia.A, steps
    p_sum = inertia.rho**2 + (k * inertia.J * (1 - a) / a) ** 2
    return 6 * (1 - a) * k**2 + (27 * a / 32 + 1) * p_sum


def rate_caps(problem: Problem, federation: Federation, inertia: Inertia) -> dict[str, float]:
    """Each condition on the local rate with the rate at which it fails.

    The theorem's text names the first two; the third, from the appendix, is what lambda > 0 needs, and always the
    tightest: it asks for eta < 1 / (64 K L B^2).
    """
    kl, a, b2 = federation.steps * problem.L, inertia.A, problem.B**2
    root = 2 / (64 * b2 + sqrt((64 * b2) ** 2 + 288 * a * b2))  # of 72 A B^2 r^2 + 64 B^2 r = 1, r = K L eta
    return {
        "eta <= 1 / (4 L K sqrt(A))": 1 / (4 * kl * sqrt(a)),
        "eta <= 3 / (16 K L)": 3 / (16 * kl),
        "64 K eta L B^2 + 72 eta^2 A K^2 B^2 L^2 < 1": root / kl,
    }


def largest_rate(problem: Problem, federation: Federation, inertia: Inertia) -> float:
    """The local rate below which the theorems hold."""
    return min(rate_caps(problem, federation, inertia).values())


def largest_lambda(problem: Problem, federation: Federation, inertia: Inertia, lr: float) -> float:
    """1/2 - 32 K eta L B^2 - 36 eta^2 A K^2 B^2 L^2; raises at rates that the theorems do not admit.

    The paper writes lambda < this; step (d) of its proof holds for lambda <= this.
    """
    if not 0 < lr < inf:
        raise UserError(f"lr: must be a finite number above 0, got {lr}")
    r = federation.steps * lr * problem.L
    lam = 0.5 - 32 * r * problem.B**2 - 36 * inertia.A * (r * problem.B) ** 2
    caps = rate_caps(problem, federation, inertia)
    broken = [condition for condition, cap in caps.items() if lr > cap or (lam <= 0 and cap == min(caps.values()))]
    if broken:
        raise UserError(f"lr: {lr:g} breaks the condition {broken[0]}; it must be below {min(caps.values()):.4g}")
    return lam


def _padded(weights: tuple[float, ...], length: int) -> tuple[float, ...]:
    return (*weights, *[0.0] * (length - len(weights)))
