"""The public point of a client: what it would send with zero gradients.

Everything else in a client's round is known to the server: the broadcast, the method and its inertia, weight decay, and
the number of local steps. So the public point contains nothing of the client's data, and an upload's distance from it
measures what the data added. For FedAvg it is x_t (after weight decay), for FedMIM x_t plus the inertia.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, Vectors
from fedmim.simulation.mean import chunks
from fedmim.simulation.settings import Settings
from fedmim.simulation.training import Stepper, with_copies
from fedmim.simulation.wire import Idle

MOST_REPORTED_STEPS = 100_000  # a client may report any number; its public point takes as many steps


class IdleClient(Idle):
    """A client whose loss is zero everywhere. It takes part for the first time."""

    def __init__(self, algorithm: Algorithm, settings: Settings, down: Vectors, lr: float, steps: int) -> None:
        slots = {name: torch.zeros_like(down["params"]) for name in algorithm.client_slots}
        super().__init__(algorithm.send(down, float(steps)), slots, lr, float(steps), first=1.0)
        self._weight_decay = settings.weight_decay

    def full_gradient(self, w: Tensor) -> Tensor:
        """Weight decay alone."""
        return self._weight_decay * w


def idle_upload(algorithm: Algorithm, settings: Settings, down: Vectors, lr: float, steps: int) -> Vectors:
    """What a client with K = `steps` local steps and zero gradients sends; `down` is the round's broadcast."""
    local = IdleClient(algorithm, settings, down, lr, steps)
    plan = with_copies(algorithm.plan(local))
    local.carry = plan.carry
    stepper = Stepper(algorithm, plan, settings.weight_decay, settings.clip_norm)
    for k in range(steps):
        local.k = k
        stepper.step(local)
    return algorithm.finish(plan.start, local)[0]


class PublicPoints:
    """The public points of a round, by number of local steps, as `Algorithm.receive` gives them.

    A point is a function of the server's state, the settings and K. Clients that keep vectors between rounds have zeros
    in their place, since the server's public values do not include them.

    K is `local_steps` if it is set and all clients do the same work. Otherwise it is the number that the client
    reports, which depends on its number of samples: that number counts as public then, and a dishonest client can move
    its point by reporting another.
    """

    def __init__(self, algorithm: Algorithm, settings: Settings, down: Vectors, buffers: Tensor, lr: float) -> None:
        self._algorithm, self._settings, self._down, self._lr = algorithm, settings, down, lr
        self._buffers = {"buffers": buffers}  # zero gradients: the client has seen no data
        self._points: dict[int, Vectors] = {}

    def at(self, steps: int) -> Vectors:
        """The public point of a client with K steps."""
        if steps not in self._points:
            upload = idle_upload(self._algorithm, self._settings, self._down, self._lr, steps)
            received = self._algorithm.receive(upload, self._down, self._lr, float(steps))
            self._points[steps] = received | self._buffers
        return self._points[steps]

    def distance(self, vectors: Vectors, steps: float) -> float:
        """The L2 distance of all of a client's vectors, jointly, from its public point; infinite if K is absurd."""
        own = self._settings.fixed_steps
        if own is None and steps > MOST_REPORTED_STEPS:
            return math.inf
        return distance(vectors, self.at(own or max(1, int(steps))))


def distance(vectors: Vectors, point: Vectors) -> float:
    """The L2 norm of the difference of all vectors, jointly, in float64."""
    square = 0.0
    for name, vector in vectors.items():
        for part in chunks(vector):
            change = vector[part].double() - point[name][part]
            square += torch.dot(change, change).item()
    return math.sqrt(square)
