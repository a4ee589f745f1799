"""Leap: multi-step inertia in one step at the server, for any method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import (
    Local,
    LocalView,
    Plan,
    Round,
    ServerState,
    Vectors,
    check_not_negative,
    check_weights,
    require,
)
from fedmim.algorithms.increments import no_increments, weighted_sum, with_increment
from fedmim.algorithms.wrapper import Wrapper

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Leap(Wrapper):
    """The inner method, started from x_t moved by the last J global increments, with learning rate A eta.

        D = sum_j alpha_j (x_{t-j} - x_{t-j-1}),   A = 1 - sum_j alpha_j > 0
        client   as the inner method, with z = x_t + (1 + ahead) D instead of x_t and A eta instead of eta
        server   x_{t+1} = (the inner method's next model, from z) - ahead D

    Around FedAvg this is x_{t+1} = x_t + D - A eta (mean sum of gradients). This is FedMIM's recursion (Lemma 5 of Liu
    et al. 2023 holds for it), but all gradients see the full inertia, which FedMIM adds in K parts. Clients send and
    keep the same vectors as with the inner method. Around FedProx with one weight it is FedACG (Kim et al. 2024) at
    learning rate eta / A, which is Nesterov momentum at the server.
    """

    suffix: ClassVar[str] = "leap"

    alpha: tuple[float, ...] = (0.6, 0.3)
    """Inertia: weights of the last increments, newest first; not negative, with a sum below 1."""
    ahead: float = 0.0
    """Look-ahead: multiple of D added to the clients' start, which the server subtracts again."""

    def __post_init__(self) -> None:
        require(isinstance(self.alpha, tuple | list), f"alpha: must be a tuple of weights, got {self.alpha!r}")
        object.__setattr__(self, "alpha", tuple(self.alpha))
        check_weights(alpha=self.alpha)
        check_not_negative(ahead=self.ahead)
        self.check_federated()
        title = self.inner.title
        require(not self.inner.inertial, f"leap: {title} already has inertia; set its weights instead")

    @property
    def inertial(self) -> bool:  # type: ignore[override]
        """Always true."""
        return True

    @property
    def plain_sgd(self) -> bool:
        """As the inner method: a client with a learning rate of its own, lr, has eta = lr / A."""
        return self.inner.plain_sgd

    @property
    def past_models(self) -> int:
        """0: clients receive only one point, so they have no models to keep."""
        return 0

    def init(self, params: Tensor) -> ServerState:
        """No increments yet."""
        inner = self.inner.init(params)
        return replace(inner, slots={**inner.slots, **no_increments(len(self.alpha), params)})

    def broadcast(self, state: ServerState) -> Vectors:
        """As the inner method, from z."""
        return self.inner.broadcast(self._leapt(state)[0])

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """As the inner method, with learning rate A eta."""
        return self.inner.receive(upload, down, self._rate * lr, steps)

    def plan(self, local: Local) -> Plan:
        """As the inner method, with learning rate A eta."""
        return self.inner.plan(self._slower(local))

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """As the inner method, with learning rate A eta."""
        return self.inner.gradient(w, self._slower(local))

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """As the inner method, with learning rate A eta."""
        return self.inner.finish(w, self._slower(local))

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Update the inner method from z, subtract the look-ahead, and add the newest increment."""
        at_z, inertia = self._leapt(state)
        after = self.inner.update(at_z, mean, replace(round, lr=self._rate * round.lr))
        params = after.params
        if inertia is not None and self.ahead:
            params = params.sub(inertia, alpha=self.ahead)
        increments = with_increment(state.slots, len(self.alpha), params - state.params)
        return replace(after, params=params, slots={**after.slots, **increments})

    @property
    def _rate(self) -> float:
        return 1 - fsum(self.alpha)

    def _slower(self, local: Local) -> Local:
        return LocalView(local, lr=self._rate * local.lr)

    def _leapt(self, state: ServerState) -> tuple[ServerState, Tensor | None]:
        """The state with z instead of x_t, and D."""
        inertia = weighted_sum(state.slots, self.alpha)
        if inertia is None:
            return state, None
        return replace(state, params=state.params.add(inertia, alpha=1 + self.ahead)), inertia
