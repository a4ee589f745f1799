"""Theorems 1 and 2 as functions of the number of rounds T.

    Theorem 1   min_t E||grad f(u_t)||^2 <= (f_0 - f*) / (lambda eta K T) + Psi_1
    Theorem 2   E||grad f(u_out)||^2     <= 4 mu (f_0 - f*) exp(-mu eta lambda K T) + Psi_2        (under PL)

    Psi_1 = (1/lambda)(eta L s^2 / S + 4 eta K L G^2 / S + 9 eta^2 K A^2 L^2 s^2 + 72 eta^2 A K^2 L^2 G^2
                       + 3 eta^2 L^2 V C),      Psi_2 = 2 Psi_1

The paper's text has K^2 V C in both; its derivation has V C, and V contains K^2 already. u_out is u_t with
probability proportional to (1 - mu eta K lambda)^(-t), t = 0 .. T-1.

Liu et al. 2023, arXiv 2302.05726, Theorems 1 and 2 with their proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, fsum, log

from fedmim.errors import UserError
from fedmim.theory.constants import largest_lambda, v_constant
from fedmim.theory.problem import Federation, Inertia, Problem


@dataclass(frozen=True)
class _Bound:
    """A bound at a constant local rate; what does not meet the theorem's conditions is refused, and named."""

    problem: Problem
    federation: Federation
    inertia: Inertia
    lr: float
    """eta, the local rate."""
    lam: float | None = None
    """lambda; None: the largest admissible, which gives the lowest bound."""

    def __post_init__(self) -> None:
        largest = largest_lambda(self.problem, self.federation, self.inertia, self.lr)
        if self.lam is None:
            object.__setattr__(self, "lam", largest)
        elif not 0 < self.lam <= largest:
            raise UserError(f"lam: must be above 0 and at most {largest:.4g} at the rate {self.lr:g}, got {self.lam}")

    def _floor_terms(self) -> dict[str, float]:
        """The terms of Psi_1, by what causes them."""
        p, k, s, a, eta = self.problem, self.federation.steps, self.federation.active, self.inertia.A, self.lr
        v, c = v_constant(self.inertia, k), p.gradient_bound(self.federation)
        terms = {
            "noise, over S": eta * p.L * p.sigma**2 / s,
            "heterogeneity, over S": 4 * eta * k * p.L * p.G**2 / s,
            "noise in the drift": 9 * k * (eta * a * p.L * p.sigma) ** 2,
            "heterogeneity in the drift": 72 * a * (eta * k * p.L * p.G) ** 2,
            "inertia": 3 * (eta * p.L) ** 2 * v * c,
        }
        return {name: term / self._lam for name, term in terms.items()}

    @property
    def _lam(self) -> float:
        assert self.lam is not None  # __post_init__ has set it
        return self.lam

    @property
    def _speed(self) -> float:
        """lambda eta K, the progress of a round."""
        return self._lam * self.lr * self.federation.steps


@dataclass(frozen=True)
class Theorem1(_Bound):
    """The bound for any smooth f: min_t E||grad f(u_t)||^2 over rounds t = 0 .. T-1."""

    @property
    def terms(self) -> dict[str, float]:
        """The terms of Psi_1, by what causes them."""
        return self._floor_terms()

    @property
    def floor(self) -> float:
        """Psi_1, what remains however long one trains at this rate."""
        return fsum(self.terms.values())

    def at(self, rounds: float) -> float:
        """The bound after T rounds."""
        _check_rounds(rounds)
        return self.problem.gap / (self._speed * rounds) + self.floor

    def rounds_to(self, accuracy: float) -> int:
        """The least T with a bound of at most `accuracy`."""
        _check_above_floor(accuracy, self.floor, "Psi_1")
        return max(1, ceil(self.problem.gap / (self._speed * (accuracy - self.floor)) * (1 - 1e-12)))


@dataclass(frozen=True)
class Theorem2(_Bound):
    """The bound under the Polyak-Lojasiewicz inequality: E||grad f(u_out)||^2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.problem.mu is None:
            raise UserError("mu: Theorem 2 needs the Polyak-Lojasiewicz constant; give mu")

    @property
    def terms(self) -> dict[str, float]:
        """The terms of Psi_2, by what causes them."""
        return {name: 2 * term for name, term in self._floor_terms().items()}

    @property
    def floor(self) -> float:
        """Psi_2, what remains however long one trains at this rate."""
        return fsum(self.terms.values())

    @property
    def contraction(self) -> float:
        """mu eta lambda K, by which a round shrinks the distance in f."""
        assert self.problem.mu is not None
        return self.problem.mu * self._speed

    @property
    def least_rounds(self) -> int:
        """The least T with eta >= 1 / (mu lambda K T), from which on the bound holds."""
        return ceil(1 / self.contraction * (1 - 1e-12))

    def at(self, rounds: float) -> float:
        """The bound after T rounds."""
        _check_rounds(rounds)
        if rounds < self.least_rounds:
            raise UserError(
                f"rounds: {rounds:g} breaks the condition eta >= 1 / (mu lambda K T); at the rate {self.lr:g} "
                f"Theorem 2 speaks from round {self.least_rounds} on"
            )
        assert self.problem.mu is not None
        return 4 * self.problem.mu * self.problem.gap * exp(-self.contraction * rounds) + self.floor

    def rounds_to(self, accuracy: float) -> int:
        """The least T with a bound of at most `accuracy`."""
        _check_above_floor(accuracy, self.floor, "Psi_2")
        assert self.problem.mu is not None
        excess = 4 * self.problem.mu * self.problem.gap / (accuracy - self.floor)
        needed = ceil(log(excess) / self.contraction * (1 - 1e-12)) if excess > 1 else 1
        return max(self.least_rounds, needed)

    def output_weights(self, rounds: int) -> list[float]:
        """The probabilities with which u_out is u_0, ..., u_{T-1}: proportional to (1 - mu eta K lambda)^(-t)."""
        _check_rounds(rounds)
        keep = 1 - self.contraction
        raw = [keep ** (rounds - 1 - t) for t in range(rounds)]  # times a constant, so that nothing overflows
        total = fsum(raw)
        return [weight / total for weight in raw]


def _check_rounds(rounds: float) -> None:
    if not rounds >= 1:
        raise UserError(f"rounds: must be at least 1, got {rounds}")


def _check_above_floor(accuracy: float, floor: float, name: str) -> None:
    if not accuracy > floor:
        raise UserError(
            f"accuracy: {accuracy:g} is below the bound's floor {name} = {floor:.4g} at this rate, which no number of "
            "rounds can pass; take a smaller rate"
        )
