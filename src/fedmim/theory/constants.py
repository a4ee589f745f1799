"""The quantities of the theorems: their assumptions, the constants of the proof, and the auxiliary sequence u_t.

    P_j = rho beta_j + K^2 J (1-A)^2 / A^2                   (Lemma 7; Q_j there is 4 L^2 P_j)
    M_j = alpha_j + 4 A L^2 eta^2 P_j                        (Lemma 8)
    V   = 6 (1-A) K^2 + (27 A / 32 + 1)(rho^2 + K^2 J^2 (1-A)^2 / A^2)   >=  sum_j (6 K^2 M_j + P_j)

    u_t = x_t + (1/A) sum_{j=0}^{J-1} (sum_{s=j}^{J-1} alpha_s) (x_{t-j} - x_{t-j-1})

eta is the local learning rate, K the number of local steps. Liu et al. 2023, arXiv 2302.05726, appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise, zip_longest
from math import fsum, inf, isfinite, sqrt
from typing import TYPE_CHECKING

from fedmim.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ProblemConstants:
    """The constants of Assumptions 1 to 4, and the other numbers that a bound needs."""

    L: float = 1.0
    """Smoothness: ||grad f_i(x) - grad f_i(y)|| <= L ||x - y|| for every client."""
    sigma: float = 1.0
    """Noise of a stochastic gradient: E||g - grad f_i(x)||^2 <= sigma^2."""
    G: float = 1.0
    """Heterogeneity: (1/N) sum_i ||grad f_i(x)||^2 <= G^2 + B^2 ||grad f(x)||^2."""
    B: float = 1.0
    """Heterogeneity that grows with the gradient, as in G; at least 1."""
    gap: float = 1.0
    """f(x_0) - f*, the initial distance to the minimum value."""
    C: float | None = None
    """Bound on the mean local gradient, ||(1/SK) sum g||^2 <= C, assumed in the appendix. None: its value at the start,
    2 B^2 L gap + G^2 / S + sigma^2 / (S K)."""
    mu: float | None = None
    """Polyak-Lojasiewicz constant, ||grad f||^2 >= 2 mu (f - f*), for Theorem 2."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not (isinstance(value, int | float) and isfinite(value) and value >= 0):
                raise UserError(f"{each.name}: must be finite and not negative, got {value}")
        for name in ("L", "gap"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name}: must be above 0, got {getattr(self, name)}")
        if self.B < 1:
            raise UserError(
                f"B: must be at least 1, got {self.B}; the proof needs it, and a smaller B is not possible if "
                "gradients are unbounded"
            )
        if self.mu is not None and not 0 < self.mu <= self.L:
            raise UserError(f"mu: must be above 0 and at most L = {self.L:g}, got {self.mu}")

    def gradient_bound(self, federation: FederationShape) -> float:
        """C: the given value, or its value at the start, where ||grad f||^2 <= 2 L gap."""
        if self.C is not None:
            return self.C
        s, k = federation.active, federation.steps
        return 2 * self.B**2 * self.L * self.gap + self.G**2 / s + self.sigma**2 / (s * k)


@dataclass(frozen=True)
class FederationShape:
    """The clients and their work per round. The theorems assume the same number of steps for all clients."""

    clients: int = 100
    """N, the number of clients."""
    active: int = 10
    """S, the number of clients that train per round."""
    steps: int = 10
    """K, local steps per round."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"{each.name}: must be a whole number of at least 1, got {value}")
        if self.active > self.clients:
            raise UserError(f"active: must be at most the number of clients, {self.clients}, got {self.active}")


@dataclass(frozen=True)
class Inertia:
    """FedMIM's weights as required by the theorems: alpha and beta not negative, the sum of alpha below 1.

    FedAvg is Inertia(); FedCM with weight a is Inertia((1 - a,)).
    """

    alpha: tuple[float, ...] = ()
    """Weights of delta_t, delta_{t-1}, ... on the iterate."""
    beta: tuple[float, ...] = ()
    """Weights of delta_t, delta_{t-1}, ... for the gradient."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            weights = tuple(getattr(self, name))
            object.__setattr__(self, name, weights)
            if not all(isfinite(weight) and weight >= 0 for weight in weights):
                raise UserError(
                    f"{name}: the weights must be finite and not negative, as the proof requires, got {weights}"
                )
        if self.A <= 0:
            raise UserError(f"alpha: the weights must sum to less than 1, got {self.alpha}")

    @property
    def A(self) -> float:  # noqa: N802
        """1 - sum_j alpha_j, the weight of a client's gradient."""
        return 1 - fsum(self.alpha)

    @property
    def rho(self) -> float:
        """The look-ahead, sum_j beta_j."""
        return fsum(self.beta)

    @property
    def J(self) -> int:  # noqa: N802
        """The number of past increments."""
        return max(len(self.alpha), len(self.beta))


# FedMIM with the best weights of the paper, and the methods that are special cases of it.
SHOWN_METHODS = {"FedAvg": Inertia(), "FedCM": Inertia((0.9,)), "FedMIM": Inertia((0.6, 0.3), (0.9, 0.1))}
HALF_INERTIA = Inertia((0.3, 0.2), (0.9, 0.1))  # A = 1/2, which remembers a few rounds


def p_constants(inertia: Inertia, steps: int) -> tuple[float, ...]:
    """P_j, j = 0 .. J-1: how far increment j moves x - m2, where the gradient is taken, away from u_t."""
    lag = steps**2 * inertia.J * ((1 - inertia.A) / inertia.A) ** 2
    betas = inertia.beta + (0.0,) * (inertia.J - len(inertia.beta))
    return tuple(inertia.rho * beta + lag for beta in betas)


def m_constants(constants: ProblemConstants, inertia: Inertia, steps: int, lr: float) -> tuple[float, ...]:
    """M_j, j = 0 .. J-1: how much increment j adds to the clients' drift."""
    factor = 4 * inertia.A * (constants.L * lr) ** 2
    pairs = zip_longest(inertia.alpha, p_constants(inertia, steps), fillvalue=0.0)
    return tuple(alpha + factor * p for alpha, p in pairs)


def v_constant(inertia: Inertia, steps: int) -> float:
    """V, which bounds sum_j (6 K^2 M_j + P_j) for every learning rate below 3 / (16 K L); 0 for FedAvg."""
    a, k = inertia.A, steps
    p_sum = inertia.rho**2 + (k * inertia.J * (1 - a) / a) ** 2
    return 6 * (1 - a) * k**2 + (27 * a / 32 + 1) * p_sum


def lr_caps(constants: ProblemConstants, federation: FederationShape, inertia: Inertia) -> dict[str, float]:
    """Each condition on the local learning rate, with the learning rate at which it fails.

    The first two are in the theorem's text. The third, from the appendix, ensures lambda > 0. It is always the
    tightest: it implies eta < 1 / (64 K L B^2).
    """
    kl, a, b2 = federation.steps * constants.L, inertia.A, constants.B**2
    root = 2 / (64 * b2 + sqrt((64 * b2) ** 2 + 288 * a * b2))  # root of 72 A B^2 r^2 + 64 B^2 r = 1, r = K L eta
    return {
        "eta <= 1 / (4 L K sqrt(A))": 1 / (4 * kl * sqrt(a)),
        "eta <= 3 / (16 K L)": 3 / (16 * kl),
        "64 K eta L B^2 + 72 eta^2 A K^2 B^2 L^2 < 1": root / kl,
    }


def largest_lr(constants: ProblemConstants, federation: FederationShape, inertia: Inertia) -> float:
    """The local learning rate below which the theorems hold."""
    return min(lr_caps(constants, federation, inertia).values())


def largest_lambda(constants: ProblemConstants, federation: FederationShape, inertia: Inertia, lr: float) -> float:
    """1/2 - 32 K eta L B^2 - 36 eta^2 A K^2 B^2 L^2; raises if the theorems do not allow the learning rate.

    The paper writes lambda < this; step (d) of its proof holds for lambda <= this.
    """
    if not 0 < lr < inf:
        raise UserError(f"lr: must be a finite number above 0, got {lr}")
    r = federation.steps * lr * constants.L
    lam = 0.5 - 32 * r * constants.B**2 - 36 * inertia.A * (r * constants.B) ** 2
    caps = lr_caps(constants, federation, inertia)
    broken = [condition for condition, cap in caps.items() if lr > cap or (lam <= 0 and cap == min(caps.values()))]
    if broken:
        raise UserError(f"lr: {lr:g} breaks the condition {broken[0]}; it must be below {min(caps.values()):.4g}")
    return lam


def auxiliary_sequence(models: Sequence[Tensor], alpha: tuple[float, ...]) -> list[Tensor]:
    """u_0, ..., u_T from a run's global models x_0, ..., x_T, with x_t = x_0 before the start.

    With any inertia it moves by plain gradients: u_{t+1} = u_t - (eta / S) sum_i sum_k g_{i,k} (Lemma 5). Without
    inertia u_t is x_t; with inertia it is ahead of x_t along the last increments.
    """
    own = Inertia(alpha).A
    tails = [fsum(alpha[j:]) / own for j in range(len(alpha))]
    points = []
    for t, model in enumerate(models):
        u = model.clone()
        for j, weight in enumerate(tails[:t]):
            u += weight * (models[t - j] - models[t - j - 1])
        points.append(u)
    return points


def increments(models: Sequence[Tensor], steps: int) -> list[Tensor]:
    """delta_0, ..., delta_T: delta_t = -(x_t - x_{t-1}) / K, delta_0 = 0."""
    after = [(before - model) / steps for before, model in pairwise(models)]
    return [models[0].new_zeros(models[0].shape), *after]
