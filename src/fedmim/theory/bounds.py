"""Theorems 1 and 2 as functions of the number of rounds T, and the learning rates that minimise them.

    Theorem 1   min_t E||grad f(u_t)||^2 <= (f_0 - f*) / (lambda eta K T) + Psi_1
    Theorem 2   E||grad f(u_out)||^2     <= 4 mu (f_0 - f*) exp(-mu eta lambda K T) + Psi_2        (under PL)

    Psi_1 = (1/lambda)(eta L s^2 / S + 4 eta K L G^2 / S + 9 eta^2 K A^2 L^2 s^2 + 72 eta^2 A K^2 L^2 G^2
                       + 3 eta^2 L^2 V C),      Psi_2 = 2 Psi_1

The paper's text has K^2 V C in both; its derivation has V C, because V already contains K^2. u_out is u_t with
probability proportional to (1 - mu eta K lambda)^(-t), t = 0 .. T-1.

Liu et al. 2023, arXiv 2302.05726, Theorems 1 and 2 with their proofs, Remarks 1 and 2.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, exp, fsum, inf, log, sqrt
from typing import ClassVar

from fedmim.errors import UserError
from fedmim.theory.constants import FederationShape, Inertia, ProblemConstants, largest_lambda, largest_lr, v_constant

MOST_ROUNDS = 10**15  # accuracies that take more are rejected


@dataclass(frozen=True)
class _Bound:
    """A bound at a constant local learning rate; checks the conditions of the theorem."""

    constants: ProblemConstants
    federation: FederationShape
    inertia: Inertia
    lr: float
    """eta, the local learning rate."""
    lam: float | None = None
    """lambda; None: the largest admissible value, which gives the lowest bound."""

    _floor_name: ClassVar[str]
    _floor_factor: ClassVar[int]  # relative to Psi_1

    def __post_init__(self) -> None:
        largest = largest_lambda(self.constants, self.federation, self.inertia, self.lr)
        if self.lam is None:
            object.__setattr__(self, "lam", largest)
        elif not 0 < self.lam <= largest:
            raise UserError(
                f"lam: must be above 0 and at most {largest:.4g} at learning rate {self.lr:g}, got {self.lam}"
            )

    @property
    def terms(self) -> dict[str, float]:
        """The terms of the floor, by their cause."""
        p, k, s, a, eta = self.constants, self.federation.steps, self.federation.active, self.inertia.A, self.lr
        v, c = v_constant(self.inertia, k), p.gradient_bound(self.federation)
        terms = {
            "noise, over S": eta * p.L * p.sigma**2 / s,
            "heterogeneity, over S": 4 * eta * k * p.L * p.G**2 / s,
            "noise in the drift": 9 * k * (eta * a * p.L * p.sigma) ** 2,
            "heterogeneity in the drift": 72 * a * (eta * k * p.L * p.G) ** 2,
            "inertia": 3 * (eta * p.L) ** 2 * v * c,
        }
        return {name: self._floor_factor * (term / self._lam) for name, term in terms.items()}

    @property
    def floor(self) -> float:
        """Psi_1 or Psi_2: the limit of the bound at this learning rate as T grows."""
        return fsum(self.terms.values())

    @property
    def _lam(self) -> float:
        assert self.lam is not None  # __post_init__ has set it
        return self.lam

    @property
    def _speed(self) -> float:
        """lambda eta K, the progress per round."""
        return self._lam * self.lr * self.federation.steps

    def _above_floor(self, accuracy: float) -> float:
        """How far an accuracy is above the floor; raises if it is not."""
        if not accuracy > self.floor:
            raise UserError(
                f"accuracy: {accuracy:g} is below the bound's floor {self._floor_name} = {self.floor:.4g} at this "
                "learning rate, so no number of rounds reaches it; use a smaller learning rate"
            )
        return accuracy - self.floor


@dataclass(frozen=True)
class Theorem1(_Bound):
    """The bound for any smooth f: min_t E||grad f(u_t)||^2 over rounds t = 0 .. T-1."""

    _floor_name = "Psi_1"
    _floor_factor = 1

    def at(self, rounds: float) -> float:
        """The bound after T rounds."""
        _check_rounds(rounds)
        return self.constants.gap / (self._speed * rounds) + self.floor

    def rounds_to(self, accuracy: float) -> int:
        """The smallest T with a bound of at most `accuracy`."""
        return max(1, ceil(self.constants.gap / (self._speed * self._above_floor(accuracy)) * (1 - 1e-12)))


@dataclass(frozen=True)
class Theorem2(_Bound):
    """The bound under the Polyak-Lojasiewicz inequality: E||grad f(u_out)||^2."""

    _floor_name = "Psi_2"
    _floor_factor = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.constants.mu is None:
            raise UserError("mu: Theorem 2 needs the Polyak-Lojasiewicz constant; set mu")

    @property
    def _mu(self) -> float:
        assert self.constants.mu is not None  # __post_init__ has checked it
        return self.constants.mu

    @property
    def contraction(self) -> float:
        """mu eta lambda K, the relative decrease of f - f* per round."""
        return self._mu * self._speed

    @property
    def least_rounds(self) -> int:
        """The smallest T with eta >= 1 / (mu lambda K T), which the bound requires."""
        return ceil(1 / self.contraction * (1 - 1e-12))

    def at(self, rounds: float) -> float:
        """The bound after T rounds."""
        _check_rounds(rounds)
        if rounds < self.least_rounds:
            raise UserError(
                f"rounds: {rounds:g} breaks the condition eta >= 1 / (mu lambda K T); at learning rate {self.lr:g} "
                f"Theorem 2 needs at least {self.least_rounds} rounds"
            )
        return 4 * self._mu * self.constants.gap * exp(-self.contraction * rounds) + self.floor

    def rounds_to(self, accuracy: float) -> int:
        """The smallest T with a bound of at most `accuracy`."""
        excess = 4 * self._mu * self.constants.gap / self._above_floor(accuracy)
        needed = ceil(log(excess) / self.contraction * (1 - 1e-12)) if excess > 1 else 1
        return max(self.least_rounds, needed)

    def output_weights(self, rounds: int) -> list[float]:
        """The probabilities of u_out = u_0, ..., u_{T-1}: proportional to (1 - mu eta K lambda)^(-t)."""
        _check_rounds(rounds)
        keep = 1 - self.contraction
        raw = [keep ** (rounds - 1 - t) for t in range(rounds)]  # scaled to avoid overflow
        total = fsum(raw)
        return [weight / total for weight in raw]


def remark_1_lr(constants: ProblemConstants, federation: FederationShape, rounds: int) -> float:
    """Remark 1's eta = O(sqrt(S / (K T))), with the constant that balances the first-order terms.

        eta = sqrt( S (f_0 - f*) / (K T L (sigma^2 + 4 K G^2)) )

    The bound is then about 4 sqrt((f_0 - f*) L (sigma^2 / K + 4 G^2) / (S T)): 1 / sqrt(S K T) if noise dominates,
    1 / sqrt(S T) if heterogeneity dominates. For small T, eta may exceed the largest admissible learning rate.
    """
    k, s = federation.steps, federation.active
    spread = constants.sigma**2 + 4 * k * constants.G**2
    return sqrt(s * constants.gap / (k * rounds * constants.L * spread)) if spread else inf


def remark_2_lr(constants: ProblemConstants, federation: FederationShape, rounds: int, lam: float = 0.25) -> float:
    """Remark 2's eta = log(mu^2 S T) / (mu lambda K T), at least the 1 / (mu lambda K T) that Theorem 2 requires."""
    if constants.mu is None:
        raise UserError("mu: Remark 2 needs the Polyak-Lojasiewicz constant; set mu")
    logarithm = log(constants.mu**2 * federation.active * rounds)
    return max(1.0, logarithm) / (constants.mu * lam * federation.steps * rounds)


def best_lr(constants: ProblemConstants, federation: FederationShape, inertia: Inertia, rounds: int) -> float:
    """The admissible learning rate with the lowest bound of Theorem 1 after T rounds.

    The bound is a convex function of the learning rate divided by a concave one, lambda, so it has one minimum.
    """
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

    def bound(log_lr: float) -> float:
        return Theorem1(constants, federation, inertia, exp(log_lr)).at(rounds)

    cap = largest_lr(constants, federation, inertia)
    low = min(cap, remark_1_lr(constants, federation, rounds)) * 1e-9
    found = minimize_scalar(bound, bounds=(log(low), log(cap)), method="bounded", options={"xatol": 1e-9})
    return exp(found.x)


def best_bound(constants: ProblemConstants, federation: FederationShape, inertia: Inertia, rounds: int) -> float:
    """Theorem 1 after T rounds at the best learning rate for T."""
    return Theorem1(constants, federation, inertia, best_lr(constants, federation, inertia, rounds)).at(rounds)


def rounds_needed(constants: ProblemConstants, federation: FederationShape, inertia: Inertia, accuracy: float) -> int:
    """The smallest T for which Theorem 1, at the best learning rate for T, gives at most `accuracy`."""
    if not accuracy > 0:
        raise UserError(f"accuracy: must be above 0, got {accuracy}")

    def reached(rounds: int) -> bool:
        return best_bound(constants, federation, inertia, rounds) <= accuracy

    high = 1
    while not reached(high):
        high *= 2
        if high > MOST_ROUNDS:
            raise UserError(f"accuracy: {accuracy:g} takes over {MOST_ROUNDS:.0e} rounds according to Theorem 1")
    between = range(high // 2 + 1, high)
    return between.start + bisect_left(between, True, key=reached)


def best_lr_under_pl(constants: ProblemConstants, federation: FederationShape, inertia: Inertia, rounds: int) -> float:
    """The admissible learning rate with the lowest bound of Theorem 2 after T rounds; raises if T is too small."""
    bounds = _grid_of_theorem_2(constants, federation, inertia)
    admissible = [bound for bound in bounds if rounds >= bound.least_rounds]
    if not admissible:
        least = min(bound.least_rounds for bound in bounds)
        raise UserError(f"rounds: {rounds} is too few for Theorem 2; eta >= 1 / (mu lambda K T) needs at least {least}")
    return min(admissible, key=lambda bound: bound.at(rounds)).lr


def least_rounds_under_pl(constants: ProblemConstants, federation: FederationShape, inertia: Inertia) -> int:
    """The smallest T for which Theorem 2 holds at some admissible learning rate."""
    return min(bound.least_rounds for bound in _grid_of_theorem_2(constants, federation, inertia))


def _grid_of_theorem_2(constants: ProblemConstants, federation: FederationShape, inertia: Inertia) -> list[Theorem2]:
    """A grid over eight decades of learning rates below the largest, half a per cent apart."""
    cap = largest_lr(constants, federation, inertia)
    return [Theorem2(constants, federation, inertia, cap * 10 ** (-8 * i / 4000)) for i in range(1, 4001)]


def _check_rounds(rounds: float) -> None:
    if not rounds >= 1:
        raise UserError(f"rounds: must be at least 1, got {rounds}")
