"""MimeLite: every local step uses the server's momentum of full gradients at the global model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, ServerState, Vectors, check_fraction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MimeLite(Algorithm):
    """Local SGD with momentum that is fixed during the round, to mimic centralised SGD with momentum.

        client   x <- x - eta ((1 - b) g + b v)                K times, from x_t
                 uploads x_i and the gradient at x_t over all of the client's data
        server   v = b v + (1 - b) mean_i grad f_i(x_t),   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    The full gradient costs one more pass over the client's data, without augmentation.

    Karimireddy et al. 2021, "Breaking the centralized barrier for cross-device federated learning", NeurIPS,
    Algorithm 1 (MimeLite with SGD and momentum, Table 2).
    """

    title: ClassVar[str] = "MimeLite"

    momentum: float = 0.9
    """b, the weight of the server's momentum in a local step."""

    def __post_init__(self) -> None:
        check_fraction(momentum=self.momentum)

    def init(self, params: Tensor) -> ServerState:
        """Momentum at zero."""
        return ServerState(params, {"momentum": params.new_zeros(params.shape)})

    def broadcast(self, state: ServerState) -> Vectors:
        """x_t and v."""
        return {"params": state.params, "momentum": state.slots["momentum"]}

    def plan(self, local: Local) -> Plan:
        """x <- x - eta (1 - b) g - eta b v."""
        shift = -local.lr * self.momentum * local.down["momentum"]
        return Plan(start=local.down["params"], rate=(1 - self.momentum) * local.lr, shift=shift)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Upload the model and the full gradient at x_t."""
        return {"params": w, "gradient": local.full_gradient(local.down["params"])}, {}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Average the models and update the momentum with the mean full gradient."""
        params = super().update(state, mean, round).params
        momentum = self.momentum * state.slots["momentum"] + (1 - self.momentum) * mean["gradient"]
        return ServerState(params, {"momentum": momentum})
