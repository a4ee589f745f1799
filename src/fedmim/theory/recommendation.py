"""Recommendations for eta, K, alpha and beta from measured constants, each with its reason.

eta and K come from Theorem 1. alpha and beta have two sources. The bound grows with rho and, unless C is far below G^2,
with 1 - A: it shows that inertia is safe, not that it helps. The exact analysis of quadratics (see
`fedmim.theory.quadratics`) gives the fixed point of local training with learning rate r: grad f = r (K-1)/2
mean_i(H_i grad f_i), for any smooth f to first order in r, with r = eta for FedAvg, A eta with inertia, 0 for SCAFFOLD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, inf, sqrt

from fedmim.theory.bounds import Theorem1, best_bound, best_lr
from fedmim.theory.constants import FederationShape, Inertia, ProblemConstants, largest_lr
from fedmim.theory.look_ahead import largest_ahead, quietest_ahead
from fedmim.theory.measurement import MeasuredConstants

MOST_STEPS = 1024
WORTHWHILE = 0.95  # doubling the steps must lower the bound to at most this fraction


@dataclass(frozen=True)
class Advice:
    """One recommendation and its reason."""

    what: str
    why: str


@dataclass(frozen=True)
class Recommendation:
    """The recommendations."""

    constants: ProblemConstants  # for the B with the lowest bound
    lr: float  # from Theorem 1, for the K of the federation
    steps: int  # K from Theorem 1
    own_weight: float | None  # A from quadratics; None if the learning rate is too large, or a round has no noise
    practice: tuple[Advice, ...]  # what the run and the analysis of quadratics show
    guarantees: tuple[Advice, ...]  # what Theorem 1 guarantees; it is cautious by several powers of ten

    @property
    def advice(self) -> tuple[Advice, ...]:
        """All recommendations."""
        return self.practice + self.guarantees


def recommend(measured: MeasuredConstants, inertia: Inertia, rounds: int) -> Recommendation:
    """Recommendations for T rounds, from constants measured on a run with these weights."""
    federation = measured.federation
    choices = [measured.constants(b) for b in measured.choices_of_b()]
    constants = min(choices, key=lambda each: best_bound(each, federation, Inertia(), rounds))
    bound = Theorem1(constants, federation, inertia, best_lr(constants, federation, inertia, rounds))
    steps = best_steps(constants, federation, inertia, rounds)
    own = own_weight_for(measured)
    practice = (
        _on_run(measured, constants, inertia),
        _on_drift(measured, inertia, own),
        _on_look_ahead(measured, inertia),
    )
    guarantees = _on_lr(bound, rounds), _on_steps(bound, rounds, steps), _on_inertia(bound, rounds)
    return Recommendation(constants, bound.lr, steps, own, practice, guarantees)


def best_steps(constants: ProblemConstants, federation: FederationShape, inertia: Inertia, rounds: int) -> int:
    """K, doubled from 1 while this lowers the bound after T rounds by over 5 %, each K at its best learning rate."""

    def bound(steps: int) -> float:
        return best_bound(constants, replace(federation, steps=steps), inertia, rounds)

    steps = 1
    while steps < MOST_STEPS and bound(2 * steps) <= WORTHWHILE * bound(steps):
        steps *= 2
    return steps


def noise_of_a_round(measured: MeasuredConstants) -> float:
    """The standard deviation of a round's mean gradient at the last point, from client and minibatch sampling."""
    last, n, s = measured.points[-1], measured.federation.clients, measured.federation.active
    spread = max(0.0, last.local_gradients - last.gradient)
    sampling = spread / s * (n - s) / (n - 1) if n > 1 else 0.0
    return sqrt(sampling + last.noise / (s * measured.federation.steps))


def drift_of_fedavg(measured: MeasuredConstants, lr: float) -> float:
    """||grad f|| at FedAvg's fixed point, to first order: eta (K-1)/2 ||mean_i H_i grad f_i||."""
    return lr * (measured.federation.steps - 1) / 2 * measured.drift


def first_order_lr(measured: MeasuredConstants) -> float:
    """1 / (K L), up to which clients move little relative to their curvature, so the first-order analysis holds."""
    return 1 / (measured.federation.steps * measured.L)


def own_weight_for(measured: MeasuredConstants) -> float | None:
    """The largest A, at most 1, that keeps the drift below the noise of a round at the run's learning rate."""
    drift, noise = drift_of_fedavg(measured, measured.lr), noise_of_a_round(measured)
    if measured.lr > first_order_lr(measured) or (drift and not noise):
        return None
    return min(1.0, noise / drift) if drift else 1.0


def _on_lr(bound: Theorem1, rounds: int) -> Advice:
    start = 1 - bound.floor / bound.at(rounds)
    cap = largest_lr(bound.constants, bound.federation, bound.inertia)
    if start > 0.75:
        why = (
            f"after {rounds} rounds {start:.0%} of the bound is still the start term, (f0 - f*) / (lambda eta K T), so "
            "the learning rate should be as large as the theorem allows"
        )
    else:
        largest = max(bound.terms, key=bound.terms.__getitem__)
        why = f"it balances the start term ({start:.0%} of the bound) with the floor, whose largest term is {largest}"
    return Advice(f"eta = {bound.lr:.2g} at K = {bound.federation.steps}, below the cap {cap:.2g} (Theorem 1)", why)


def _on_steps(bound: Theorem1, rounds: int, steps: int) -> Advice:
    constants = bound.constants
    knee = constants.sigma**2 / (4 * constants.G**2) if constants.G else inf
    single, chosen = (
        best_bound(constants, replace(bound.federation, steps=k), bound.inertia, rounds) for k in (1, steps)
    )
    gain = f"K = {steps} lowers the bound {single / chosen:.2g} times compared to K = 1"
    why = (
        "the bound's leading term is sqrt(L (f0 - f*) (sigma^2 / K + 4 G^2) / (S T)), so local steps help until K is "
        f"about sigma^2 / (4 G^2) = {knee:.2g}, but not while the cap on eta K is active; "
        f"{'more than one hardly lowers the bound' if steps == 1 else gain}. The bound ignores "
        "communication: local steps send no bytes"
    )
    return Advice(f"K = {steps} (Theorem 1)", why)


def _on_inertia(bound: Theorem1, rounds: int) -> Advice:
    plain, heavy = (best_bound(bound.constants, bound.federation, each, rounds) for each in (Inertia(), bound.inertia))
    return Advice(
        f"alpha, beta: the bound is {heavy / plain:.2g} times FedAvg's with inertia",
        f"{bound.terms['inertia'] / heavy:.0%} of it is the term 3 eta^2 L^2 V C, which grows with rho and with 1 - A; "
        "it shows that inertia is safe, not that it helps",
    )


def _on_drift(measured: MeasuredConstants, inertia: Inertia, own: float | None) -> Advice:
    lr = min(measured.lr, first_order_lr(measured))
    drift, noise = drift_of_fedavg(measured, lr), noise_of_a_round(measured)
    why = (
        f"at learning rate {lr:.2g} FedAvg converges to a point with ||grad f|| = {drift:.2g}, inertia with A = "
        f"{inertia.A:.2g} to {inertia.A * drift:.2g}, SCAFFOLD to 0 (beta does not matter); the standard deviation of "
        f"a round's mean gradient is {noise:.2g}"
    )
    if own is None and not noise:
        what = "alpha: no recommendation, because a round has no noise to compare the drift with; try values"
    elif own is None:
        what = f"alpha: no recommendation at the run's learning rate {measured.lr:g}; try values"
        why += (
            f". That learning rate is 1 / (K L); the run's is {measured.lr / lr:.2g} times larger, so clients move far "
            "towards their own minima"
        )
    elif own < 1:
        what = f"alpha: sum of about {1 - own:.2g} (A = {own:.2g}), which keeps the drift below the noise"
    else:
        what = "alpha: not needed against drift; with inertia the learning rate can be 1/A times as large"
    return Advice(f"{what} (quadratics, to first order)", why)


def safe_ahead(response: float, alpha: Sequence[float]) -> float:
    """The look-ahead of the leap that is best for the largest response, and better than none for all smaller ones.

    It is the quietest look-ahead for the largest response, rounded down to a tenth; 0 where a round overshoots.
    """
    return floor(10 * quietest_ahead(response, alpha)) / 10 if 0 < response < 1 else 0.0


def _on_look_ahead(measured: MeasuredConstants, inertia: Inertia) -> Advice:
    response = measured.response
    ahead = safe_ahead(response, inertia.alpha)
    if not inertia.alpha:
        effect = "Without inertia there is nothing to look ahead along"
    elif ahead:
        edge = largest_ahead(response, inertia.alpha)
        effect = (
            "Up to this look-ahead, more of it lowers the noise of client sampling in every direction; it becomes "
            f"unstable at {edge:.1f}"
        )
    else:
        effect = "Where a round takes back nearly everything or more, look-ahead adds noise"
    return Advice(
        f"ahead = {ahead:g} for the leap with this alpha (quadratics)",
        f"a round of local training takes back at most {response:.0%} of a displacement, over points and directions. "
        f"{effect}",
    )


def _on_run(measured: MeasuredConstants, constants: ProblemConstants, inertia: Inertia) -> Advice:
    cap = largest_lr(constants, measured.federation, inertia)
    stable = 2 / (inertia.A * measured.L)
    first, last = measured.points[0], measured.points[-1]
    values = f"f went from {first.value:.3g} to {last.value:.3g} in {last.round} rounds"
    if last.value < first.value:
        what = f"eta = {measured.lr:g}, the run's learning rate, trains: {values}"
        next_step = "start from it; `fedmim tune` searches for a better one"
    else:
        what = f"eta = {measured.lr:g}, the run's learning rate, does not train: {values}"
        next_step = "try a smaller one"
    return Advice(
        what,
        f"{next_step}. On quadratics with this L, local steps are stable up to 2 / (A L) = {stable:.2g}. The "
        f"guarantee below holds up to {cap:.2g} only; the run's learning rate is {measured.lr / cap:.2g} times that. "
        "Its condition is sufficient, not necessary",
    )
