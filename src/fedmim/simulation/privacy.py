"""Client-level differential privacy of the model: clipped uploads, Gaussian noise at the server, and the accountant.

    d_i = u_i - p,   p the public point           all vectors of an upload jointly; 0 if client i sent none
    mean = p + (sum_i d_i min(1, C / ||d_i||) + z C N(0, I)) / S           S: the planned number of clients

The next state is a function of this mean and of public values, whatever the method: `Algorithm.update` sees no single
upload. Replacing all data of one client changes the sum by at most 2 C.

McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models", Algorithm 1; clipped around the public
point instead of x_t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

from torch import Tensor

from fedmim.algorithms import Vectors
from fedmim.errors import UserError
from fedmim.simulation.mean import StreamingMean
from fedmim.simulation.randomness import gaussian
from fedmim.simulation.settings import Settings

CLIP_LR = 0.2  # eta_C of Andrew et al. 2021
LARGEST_CLIP = 1e30


@dataclass(frozen=True)
class NoiseShares:
    """The noise of a round with S clients: on the sum of the uploads, and on the count of those not clipped.

    With a fixed C there is no count. Otherwise the standard deviation of the count's noise is sigma_b = S / 20, and at
    least z; with z_sum = (z^-2 - (2 sigma_b)^-2)^(-1/2) both together cost as much privacy as the noise multiplier z.

    Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping", Theorem 1 and Section 3.1.
    """

    sum: float  # relative to C
    count: float

    @classmethod
    def of(cls, z: float, planned: int, adaptive: bool) -> NoiseShares:
        """The noise of a round; `adaptive`: C adapts."""
        if not adaptive:
            return cls(z, 0.0)
        count = max(planned / 20, z)
        return cls((z**-2 - (2 * count) ** -2) ** -0.5, count)


@dataclass(frozen=True)
class Released:
    """The outcome of a round. All of it is covered by the guarantee."""

    means: Vectors
    share: float  # S / N
    clip: float  # clip norm of the next round
    epsilon: float  # after this round


class PrivateMean:
    """The noisy mean of a round's clipped uploads, which arrive one at a time."""

    def __init__(self, point: Vectors, clip: float) -> None:
        self._point, self._clip = {name: vector for name, vector in point.items() if name != "buffers"}, clip
        self._sum = StreamingMean(self._point)  # its weights are the clipping factors
        self._votes = 0.0  # sum of 1/2 for each upload within the clip norm, -1/2 for each other

    @property
    def clients(self) -> int:
        """The number of uploads so far."""
        return self._sum.clients

    def add(self, upload: Vectors, distance: float) -> None:
        """Add an upload at this distance from the public point."""
        self._sum.add(1.0 if distance <= self._clip else self._clip / distance, upload)
        self._votes += 0.5 if distance <= self._clip else -0.5

    def release(self, settings: Settings, clients: int, seed: int, round: int) -> Released:
        """End the round of a federation of N clients. The seed determines the noise, so it must be a secret."""
        planned, z = settings.active(clients), settings.dp_noise or 0.0
        shares = NoiseShares.of(z, planned, adaptive=settings.dp_clip_quantile is not None)
        spent = epsilon(z, planned, clients, round + 1, settings.dp_delta)
        sums = self._sum.sums()

        def noisy(name: str, point: Tensor) -> Tensor:
            total = shares.sum * self._clip * gaussian(f"privacy {name}", seed, round, point.numel()).to(point.device)
            if name in sums:
                total += sums[name]
            return (point.double() + total / planned).to(point.dtype)

        means = {name: noisy(name, point) for name, point in self._point.items()}
        clip = self._clip
        if settings.dp_clip_quantile is not None:
            noise = shares.count * gaussian("privacy clip", seed, round, 1).item()
            clip = next_clip(clip, 0.5 + (self._votes + noise) / planned, settings.dp_clip_quantile)
        return Released(means, planned / clients, clip, spent)


def next_clip(clip: float, within: float, quantile: float) -> float:
    """C exp(-0.2 (b - quantile)), with b = `within` the noisy fraction of the uploads that were not clipped.

    Andrew et al. 2021, Section 2.1, with the geometric update. A client counts as 1/2 or -1/2 around 1/2, as in their
    Theorem 1, so one that sent nothing moves C to neither side.
    """
    return min(clip * math.exp(-CLIP_LR * (within - quantile)), LARGEST_CLIP)


def check_private(settings: Settings, buffers: Tensor) -> None:
    """Reject what would void the guarantee of a run with differential privacy, before it begins."""
    if settings.dp_noise is None:
        return
    if len(buffers):
        raise UserError(
            "model: has buffers (such as batch norm's statistics), which are averaged without noise; use GroupNorm, or "
            "remove dp_noise"
        )
    import_accounting()


def check_delta(settings: Settings, clients: int) -> None:
    """Reject a delta with which a client's data could simply be published."""
    if settings.dp_noise is not None and settings.dp_delta * clients >= 1:
        raise UserError(f"dp_delta: must be below 1/N = {1 / clients:.3g} with {clients} clients")


def epsilon(noise: float, planned: int, clients: int, rounds: int, delta: float) -> float:
    """The epsilon of (epsilon, delta)-differential privacy after `rounds` rounds with noise multiplier z = `noise`.

    Neighbouring federations have the same N = `clients` clients and differ in all data of one of them (replace one).
    Each round samples S = `planned` of them without replacement, in secret.
    """
    orders, renyi = _one_round(noise, planned, clients)
    return float(import_accounting().rdp.compute_epsilon(orders, [rounds * each for each in renyi], delta)[0])


@lru_cache(maxsize=16)
def _one_round(noise: float, planned: int, clients: int) -> tuple[list[float], list[float]]:
    """Orders, and the Renyi differential privacy of one round at each.

    Replacing a client changes the sum of the clipped uploads by up to 2 C, so the noise is z / 2 times the sensitivity.
    Of the bound for sampling without replacement (Wang et al. 2019, "Subsampled Renyi Differential Privacy and
    Analytical Moments Accountant", Theorem 27) and the one that ignores the sampling, both of which hold, the smaller.
    """
    accounting = import_accounting()
    mechanism = accounting.GaussianDpEvent(noise / 2)
    events = [mechanism]
    if planned < clients:
        events.append(accounting.SampledWithoutReplacementDpEvent(clients, planned, mechanism))
    relation = accounting.NeighboringRelation.REPLACE_ONE
    bounds = [accounting.rdp.RdpAccountant(neighboring_relation=relation).compose(event) for event in events]
    smallest = [min(each) for each in zip(*(bound.rdp.tolist() for bound in bounds), strict=True)]
    return bounds[0].orders.tolist(), smallest


def import_accounting() -> ModuleType:
    """Import the library that computes epsilon, an optional dependency."""
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError as error:
        raise UserError("dp_noise: requires dp-accounting: pip install 'fedmim[privacy]'") from error
    return dp_accounting  # type: ignore[no-any-return]
