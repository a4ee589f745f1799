"""FedMIM: multi-step inertia on the local iterate, and a look-ahead for the gradient, at the cost of FedAvg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import (
    LARGEST,
    Algorithm,
    Local,
    Plan,
    Round,
    ServerState,
    Vectors,
    finite,
    plus,
    require,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedMIM(Algorithm):
    """Local SGD that is drawn along by the last J global increments.

        delta_t = -(x_t - x_{t-1}) / K           K: the client's own number of steps; delta_0 = 0
        m1 = sum_j alpha_j delta_{t-j}           inertia on the iterate, A = 1 - sum_j alpha_j > 0
        m2 = sum_j beta_j  delta_{t-j}           look-ahead for the gradient
        client   x <- x - m1 - A eta grad f_i(x - m2)          K times, from x_t
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    m1 and m2 are constant within a round, so the client runs z = x - m2 instead, z <- z - m1 - A eta grad f_i(z),
    and returns x = z + m2: one gradient per step and no second copy of the model.

    Liu et al. 2023, "Enhance Local Consistency in Federated Learning: A Multi-Step Inertial Momentum Approach",
    arXiv 2302.05726, Algorithm 1; the defaults are the best row of its Table III.
    """

    title: ClassVar[str] = "FedMIM"

    alpha: tuple[float, ...] = (0.6, 0.3)
    """Inertia: weights of delta_t, delta_{t-1}, ... on the iterate; not negative, sum below 1."""
    beta: tuple[float, ...] = (0.9, 0.1)
    """Look-ahead: weights of delta_t, delta_{t-1}, ... where the gradient is taken; any sign, may be empty."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            weights = getattr(self, name)
            require(isinstance(weights, tuple | list), f"{name}: must be a tuple of weights, got {weights!r}")
            object.__setattr__(self, name, tuple(weights))
        require(finite(self.alpha), f"alpha: the weights must be finite numbers, got {self.alpha}")
        require(min(self.alpha, default=0) >= 0, f"alpha: the weights must not be negative, got {self.alpha}")
        require(fsum(self.alpha) < 1, f"alpha: the weights must sum to less than 1, got {self.alpha}")
        require(finite(self.beta), f"beta: the weights must be finite numbers of at most {LARGEST:g}, got {self.beta}")

    @property
    def past_models(self) -> int:
        """J: the last J increments are differences of the last J + 1 models."""
        return max(len(self.alpha), len(self.beta))

    def init(self, params: Tensor) -> ServerState:
        """No increments yet."""
        return ServerState(params, {f"increment_{j}": params.new_zeros(params.shape) for j in range(self.past_models)})

    def broadcast(self, state: ServerState) -> Vectors:
        """x_t with the two sums over increments x_{t-j} - x_{t-j-1}, which the client divides by its own -K."""
        down = {"params": state.params}
        for name, weights in (("inertia", self.alpha), ("look_ahead", self.beta)):
            for j, weight in enumerate(weights):
                increment = state.slots[f"increment_{j}"]
                if weight and name in down:
                    down[name].add_(increment, alpha=weight)
                elif weight:
                    down[name] = weight * increment
        return down

    def rebuild_broadcast(self, models: Sequence[Tensor]) -> Vectors:
        """The same from x_t, x_{t-1}, ..., x_{t-J}."""
        increments = {f"increment_{j}": models[j] - models[j + 1] for j in range(self.past_models)}
        return self.broadcast(ServerState(models[0], increments))

    def plan(self, local: Local) -> Plan:
        """In z = x - m2: start at x_t - m2, then z <- z - A eta g - m1."""
        inertia = local.down.get("inertia")
        return Plan(
            start=self._add_m2(local.down["params"], -1, local),
            rate=(1 - fsum(self.alpha)) * local.lr,
            shift=None if inertia is None else inertia / local.steps,
        )

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Back from z to x = z + m2."""
        return {"params": self._add_m2(w, 1, local)}, {}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """The mean, and each increment a place further back."""
        params = super().update(state, mean, round).params
        slots = {f"increment_{j}": state.slots[f"increment_{j - 1}"] for j in range(1, self.past_models)}
        if self.past_models:
            slots["increment_0"] = params - state.params
        return ServerState(params, slots)

    @staticmethod
    def _add_m2(x: Tensor, times: int, local: Local) -> Tensor:
        """x + times * m2, where m2 = -(the server's sum of increments) / K; x where its weights are all zero."""
        increments = local.down.get("look_ahead")
        return x if increments is None else plus(x, -times / local.steps, increments)
