"""FedCM: the last global change as momentum on the clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, ServerState, Vectors, require

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedCM(Algorithm):
    """Local SGD that mixes each gradient with the last global direction.

        client   x <- x - eta (a g + (1 - a) D_t / K)          K times, from x_t; K: the client's steps
        server   D_{t+1} = (x_t - mean_i x_i) / eta,   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    Xu et al. 2021, "FedCM: Federated Learning with Client-level Momentum", Algorithm 2.
    """

    title: ClassVar[str] = "FedCM"

    alpha: float = 0.1
    """a, the weight of the client's own gradient; the rest is the last global direction."""

    def __post_init__(self) -> None:
        require(0 < self.alpha <= 1, f"alpha: must be above 0 and at most 1, got {self.alpha}")

    def init(self, params: Tensor) -> ServerState:
        """No direction yet."""
        return ServerState(params, {"direction": params.new_zeros(params.shape)})

    def broadcast(self, state: ServerState) -> Vectors:
        """x_t and D_t."""
        return {"params": state.params, "direction": state.slots["direction"]}

    def plan(self, local: Local) -> Plan:
        """x <- x - eta a g - eta (1 - a) D_t / K."""
        return Plan(
            start=local.down["params"],
            rate=self.alpha * local.lr,
            shift=local.down["direction"] * (-(1 - self.alpha) * local.lr / local.steps),
        )

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Average the models and store the global direction."""
        params = super().update(state, mean, round).params
        return ServerState(params, {"direction": (state.params - mean["params"]) / round.lr})
