"""What the theorems assume: the constants of a problem, the shape of a federation, the weights of the inertia."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fedmim.errors import UserError


@dataclass(frozen=True)
class Problem:
    """The constants of Assumptions 1 to 4, and what a bound needs besides."""

    L: float = 1.0
    """Smoothness: ||grad f_i(x) - grad f_i(y)|| <= L ||x - y|| for every client."""
    sigma: float = 1.0
    """Noise of a stochastic gradient: E||g - grad f_i(x)||^2 <= sigma^2."""
    G: float = 1.0
    """Heterogeneity: (1/N) sum_i ||grad f_i(x)||^2 <= G^2 + B^2 ||grad f(x)||^2."""
    B: float = 1.0
    """The same, the part that grows with the gradient; at least 1."""
    gap: float = 1.0
    """f(x_0) - f*, how far the start is above the lowest value."""
    C: float | None = None
    """Bound on the mean local gradient, ||(1/SK) sum g||^2 <= C, which the appendix assumes. None: its value at the
    start, 2 B^2 L gap + G^2 / S + sigma^2 / (S K)."""
    mu: float | None = None
    """Polyak-Lojasiewicz constant, ||grad f||^2 >= 2 mu (f - f*), for Theorem 2."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise UserError(f"{each.name}: must be a finite number and not negative, got {value}")
        for name in ("L", "gap"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name}: must be above 0, got {getattr(self, name)}")
        if self.B < 1:
            raise UserError(
                f"B: must be at least 1, got {self.B}; the proof absorbs B^2 + 1 into a multiple of B^2, and where "
                "gradients are unbounded no smaller one exists"
            )
        if self.mu is not None and not 0 < self.mu <= self.L:
            raise UserError(f"mu: must be above 0 and at most L = {self.L:g}, got {self.mu}")

    def gradient_bound(self, federation: Federation) -> float:
        """C: the value given, or that of the mean gradient at the start, where ||grad f||^2 <= 2 L gap."""
        if self.C is not None:
            return self.C
        s, k = federation.active, federation.steps
        return 2 * self.B**2 * self.L * self.gap + self.G**2 / s + self.sigma**2 / (s * k)


@dataclass(frozen=True)
class Federation:
    """Clients and their work in a round; the theorems have every client take the same number of steps."""

    clients: int = 100
    """N, how many clients."""
    active: int = 10
    """S, how many of them train in a round."""
    steps: int = 10
    """K, local steps a round."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"{each.name}: must be a whole number of at least 1, got {value}")
        if self.active > self.clients:
            raise UserError(f"active: must be at most the number of clients, {self.clients}, got {self.active}")


@dataclass(frozen=True)
class Inertia:
    """FedMIM's weights, as the theorems admit them: neither alpha nor beta negative, sum of alpha below 1.

    FedAvg is Inertia(), FedCM with its weight a is Inertia((1 - a,)).
    """

    alpha: tuple[float, ...] = ()
    """Weights of delta_t, delta_{t-1}, ... on the iterate."""
    beta: tuple[float, ...] = ()
    """Weights of delta_t, delta_{t-1}, ... where the gradient is taken."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            weights = tuple(getattr(self, name))
            object.__setattr__(self, name, weights)
            if not all(math.isfinite(weight) and weight >= 0 for weight in weights):
                raise UserError(
                    f"{name}: the weights must be finite and not negative, got {weights}; the proof averages with them"
                )
        if self.A <= 0:
            raise UserError(f"alpha: the weights must sum to less than 1, got {self.alpha}")

    @property
    def A(self) -> float:  # noqa: N802
        """1 - sum_j alpha_j, the weight of a client's own gradient."""
        return 1 - math.fsum(self.alpha)

    @property
    def rho(self) -> float:
        """sum_j beta_j."""
        return math.fsum(self.beta)

    @property
    def J(self) -> int:  # noqa: N802
        """How many past increments are used."""
        return max(len(self.alpha), len(self.beta))
