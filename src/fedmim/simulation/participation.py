"""System heterogeneity: which clients are available, how much they do, how long it takes, and whether they reply.

    available   in a window of the day of its own: (t / rounds_per_day - begin_i) mod 1 < availability
    K           ceil(factor * E) epochs, or ceil(factor * local_steps) steps, with a factor drawn from `work`; if E is a
                fraction, ceil(factor * E * minibatches per epoch) steps
    speed       exp(speed_spread * N(0, 1)), once per client; the median is 1
    time        K / (speed * usual K), usual K: the median over all clients without `work`
    replies     with probability 1 - dropout, and with late "drop" only before the deadline

Every draw is keyed by the seed, its purpose, and the round and client that it is for. So runs repeat and resume, and
do not depend on the engine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median

from fedmim.errors import UserError
from fedmim.simulation.randomness import key, sample_clients
from fedmim.simulation.settings import PARTICIPATION, Settings
from fedmim.simulation.task import Task

SLACK = 1 + 1e-12  # steps that end at the deadline fit, whatever the rounding


@dataclass(frozen=True)
class Turnout:
    """What the clients that were asked in a round do."""

    steps: dict[int, int]  # client -> K, of the clients that reply; most steps first, then most samples, then by id
    missing: int  # number of clients that do not reply
    time: float | None  # when the round ends, in units of the usual time of the median client; None: not simulated

    @property
    def steps_mean(self) -> float | None:
        """The mean number of local steps; None if no client replies."""
        return sum(self.steps.values()) / len(self.steps) if self.steps else None


def available_clients(settings: Settings, round: int, clients: int) -> Sequence[int]:
    """The ids of the clients, out of this many, that are available in round t = 0, 1, ..., ascending."""
    if settings.availability == 1:
        return range(clients)
    now = round % settings.rounds_per_day / settings.rounds_per_day
    begins = _window_begins(settings.seed, clients)
    return [client for client in range(clients) if (now - begins[client]) % 1 < settings.availability]


def asked_clients(settings: Settings, seed: int, round: int, clients: int) -> list[int]:
    """The clients that are asked to train in a round: S of the available ones, or all if they are fewer; ascending."""
    available = available_clients(settings, round, clients)
    places = sample_clients(seed, round, len(available), min(settings.active(clients), len(available)))
    return [available[place] for place in places]


def turnout(settings: Settings, round: int, sizes: Mapping[int, int], usual: float) -> Turnout:
    """What these clients, with their numbers of samples, do in a round; `usual` is from `usual_steps`."""
    if settings.full_turnout:  # nothing is drawn
        return Turnout(_in_order({each: settings.steps(samples) for each, samples in sizes.items()}, sizes), 0, None)
    found, times, waits = dict[int, int](), list[float](), False
    for client, samples in sizes.items():
        steps = own_steps(settings, round, client, samples)
        pace = speed(settings, client) * usual  # steps per unit of time
        fits = steps if settings.deadline is None else math.floor(settings.deadline * pace * SLACK)
        waits |= steps > fits
        if not replies(settings, round, client) or (steps > fits and (settings.late == "drop" or not fits)):
            continue
        found[client] = min(steps, fits)
        times.append(found[client] / pace)
    missing = len(sizes) - len(found)
    ends = settings.deadline if settings.deadline is not None and (waits or missing) else max(times, default=0.0)
    return Turnout(_in_order(found, sizes), missing, ends if settings.timed else None)


def own_steps(settings: Settings, round: int, client: int, samples: int) -> int:
    """K of a client with this many samples in a round, without a deadline."""
    if settings.work is None:
        return settings.steps(samples)
    draws = (_uniform(purpose, settings.seed, round, client) for purpose in ("work part", "work"))
    return settings.steps(samples, settings.local_work.factor(*draws))


def replies(settings: Settings, round: int, client: int) -> bool:
    """Whether a client does not drop out of a round."""
    return not settings.dropout or _uniform("dropout", settings.seed, round, client) >= settings.dropout


def speed(settings: Settings, client: int) -> float:
    """The speed of a client, lognormal with median 1, the same in all rounds."""
    if not settings.speed_spread:
        return 1.0
    return math.exp(settings.speed_spread * NormalDist().inv_cdf(_uniform("speed", settings.seed, client)))


def usual_steps(settings: Settings, task: Task) -> float:
    """The median of K over all clients without `work`; 1 if times are not simulated, which do not need it."""
    if settings.local_steps or not settings.timed:
        return float(settings.local_steps or 1)
    return float(median(settings.steps(task.size(client)) for client in range(len(task.clients))))


def check_real_clients(settings: Settings, where: str) -> None:
    """Reject the settings of simulated participation where the clients are not simulated."""
    for name, default in PARTICIPATION.items():
        if getattr(settings, name) != default:
            value = "none" if default is None else default
            raise UserError(f"{name}: must be {value} {where}; it is for simulations")


def _in_order(steps: Mapping[int, int], sizes: Mapping[int, int]) -> dict[int, int]:
    """Most steps first, then most samples, then by id."""
    return {client: steps[client] for client in sorted(steps, key=lambda each: (-steps[each], -sizes[each], each))}


def _uniform(purpose: str, *numbers: int) -> float:
    """A number between 0 and 1, exclusive."""
    return (key(purpose, *numbers) + 0.5) / 2**32


@lru_cache(maxsize=4)
def _window_begins(seed: int, clients: int) -> list[float]:
    """When each client's window begins, as a part of the day; client i's does not depend on the number of clients."""
    draw = random.Random(key("windows", seed))
    return [draw.random() for _ in range(clients)]
