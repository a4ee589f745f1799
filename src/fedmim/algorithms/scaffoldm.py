"""SCAFFOLD-M: SCAFFOLD with the last global direction as client momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, Scalar, ServerState, Vectors, require

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ScaffoldM(Algorithm):
    """Local SGD that mixes SCAFFOLD's corrected gradient with the last global direction.

        client   x <- x - eta (b (g - c_i + c) + (1 - b) v)    K times, from x_t
                 c_i+ = c_i - c + ((x_t - x_i) / (K eta) - (1 - b) v) / b, the mean of the client's gradients
        server   v = mean_i (x_t - x_i) / (K_i eta),   c += share * mean_i (c_i+ - c_i)
                 x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    share is S/N; all states start at zero. K may differ between clients; in the paper it is the same for all.

    Cheng et al. 2024, "Momentum Benefits Non-IID Federated Learning Simply and Provably", ICLR, Algorithm 2.
    """

    title: ClassVar[str] = "SCAFFOLD-M"
    client_slots: ClassVar[tuple[str, ...]] = ("control",)

    beta: float = 0.1
    """b, the weight of the corrected gradient; the rest is the last global direction."""

    def __post_init__(self) -> None:
        require(0 < self.beta <= 1, f"beta: must be above 0 and at most 1, got {self.beta}")

    def init(self, params: Tensor) -> ServerState:
        """c and v at zero."""
        return ServerState(params, {name: params.new_zeros(params.shape) for name in ("control", "direction")})

    def broadcast(self, state: ServerState) -> Vectors:
        """x_t, c and v."""
        return {"params": state.params, **state.slots}

    def plan(self, local: Local) -> Plan:
        """x <- x - eta b g + eta (b (c_i - c) - (1 - b) v)."""
        down, b = local.down, self.beta
        correction = b * (local.slots["control"] - down["control"]) - (1 - b) * down["direction"]
        return Plan(start=down["params"], rate=b * local.lr, shift=local.lr * correction)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Upload the model; keep the new c_i."""
        direction = _direction(w, local.down, local.lr, local.steps)
        return {"params": w}, {"control": local.slots["control"] + self._change(direction, local.down)}

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """The model, and the client's direction and change of c_i, which the server computes from it."""
        direction = _direction(upload["params"], down, lr, steps)
        return {**upload, "direction": direction, "control_change": self._change(direction, down)}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Average the models and directions, and update c by the mean change over all N clients."""
        params = super().update(state, mean, round).params
        control = state.slots["control"] + round.share * mean["control_change"]
        return ServerState(params, {"control": control, "direction": mean["direction"]})

    def _change(self, direction: Tensor, down: Vectors) -> Tensor:
        """c_i+ - c_i."""
        return (direction - (1 - self.beta) * down["direction"]) / self.beta - down["control"]


def _direction(w: Tensor, down: Vectors, lr: float, steps: Scalar) -> Tensor:
    """(x_t - x_i) / (K eta)."""
    return (down["params"] - w) / (steps * lr)
