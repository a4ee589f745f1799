"""FedMIM: multi-step inertia on the local iterate and a look-ahead for the gradient; one gradient per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, ClassVar, Literal

from fedmim.algorithms.base import (
    Algorithm,
    Local,
    Plan,
    Round,
    Scalar,
    ServerState,
    Vectors,
    check_weights,
    finite,
    plus,
    require,
)
from fedmim.algorithms.increments import no_increments, weighted_sum, with_increment

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedMIM(Algorithm):
    """Local SGD with inertia from the last J global increments.

        delta_t = -(x_t - x_{t-1}) / K           K: the client's number of steps; delta_0 = 0
        m1 = sum_j alpha_j delta_{t-j}           inertia on the iterate, A = 1 - sum_j alpha_j > 0
        m2 = sum_j beta_j  delta_{t-j}           look-ahead for the gradient
        client   x <- x - m1 - A eta grad f_i(x - m2)          K times, from x_t
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    m1 and m2 are constant within a round, so the client iterates z = x - m2 instead, z <- z - m1 - A eta grad f_i(z):
    one gradient per step and no second copy of the model. It uploads z, and the server adds m2.

    Liu et al. 2023, "Enhance Local Consistency in Federated Learning: A Multi-Step Inertial Momentum Approach",
    arXiv 2302.05726, Algorithm 1; the defaults are the best row of its Table III.
    """

    title: ClassVar[str] = "FedMIM"
    inertial: ClassVar[bool] = True

    alpha: tuple[float, ...] = (0.6, 0.3)
    """Inertia: weights of delta_t, delta_{t-1}, ... on the iterate; not negative, with a sum below 1."""
    beta: tuple[float, ...] = (0.9, 0.1)
    """Look-ahead: weights of delta_t, delta_{t-1}, ... for the gradient; any sign, may be empty."""
    beta_unit: Literal["step", "round"] = "step"
    """What beta multiplies: step (delta, an increment divided by K, as in the paper) or round (whole increments)."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            weights = getattr(self, name)
            require(isinstance(weights, tuple | list), f"{name}: must be a tuple of weights, got {weights!r}")
            object.__setattr__(self, name, tuple(weights))
        check_weights(alpha=self.alpha)
        require(finite(self.beta), f"beta: the weights must be finite, got {self.beta}")
        require(self.beta_unit in ("step", "round"), f"beta_unit: must be step or round, got {self.beta_unit!r}")

    @property
    def past_models(self) -> int:
        """J: the last J increments are differences of the last J + 1 models."""
        return max(len(self.alpha), len(self.beta))

    def init(self, params: Tensor) -> ServerState:
        """No increments yet."""
        return ServerState(params, no_increments(self.past_models, params))

    def broadcast(self, state: ServerState) -> Vectors:
        """x_t and the two sums over increments x_{t-j} - x_{t-j-1}, not yet divided by -K."""
        sums = {"inertia": weighted_sum(state.slots, self.alpha), "look_ahead": weighted_sum(state.slots, self.beta)}
        return {"params": state.params} | {name: total for name, total in sums.items() if total is not None}

    def rebuild_broadcast(self, models: Sequence[Tensor]) -> Vectors:
        """The broadcast from x_t, x_{t-1}, ..., x_{t-J}."""
        increments = {f"increment_{j}": models[j] - models[j + 1] for j in range(self.past_models)}
        return self.broadcast(ServerState(models[0], increments))

    def send(self, down: Vectors, steps: Scalar) -> Vectors:
        """x_t - m2 and the inertia: two vectors once K is known."""
        sent = {name: vector for name, vector in down.items() if name != "look_ahead"}
        return sent | {"params": self._minus_m2(down, steps)}

    def plan(self, local: Local) -> Plan:
        """In z = x - m2: start at x_t - m2, then z <- z - A eta g - m1."""
        inertia = local.down.get("inertia")
        return Plan(
            start=self._minus_m2(local.down, local.steps),
            rate=(1 - fsum(self.alpha)) * local.lr,
            shift=None if inertia is None else inertia / local.steps,
        )

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """Convert z back to x = z + m2."""
        look_ahead = down.get("look_ahead")
        return upload if look_ahead is None else {"params": plus(upload["params"], -1 / self._unit(steps), look_ahead)}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Average the models and add the newest increment."""
        params = super().update(state, mean, round).params
        return ServerState(params, with_increment(state.slots, self.past_models, params - state.params))

    def _minus_m2(self, down: Vectors, steps: Scalar) -> Tensor:
        """x_t - m2, with m2 = -(the server's sum of increments) / K; `send` may have computed it already."""
        look_ahead = down.get("look_ahead")
        return down["params"] if look_ahead is None else plus(down["params"], 1 / self._unit(steps), look_ahead)

    def _unit(self, steps: Scalar) -> Scalar:
        return steps if self.beta_unit == "step" else 1.0
