"""SCAFFOLD: control variates that cancel each client's drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, Scalar, ServerState, Vectors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Local SGD; each gradient is corrected by the server's minus the client's control variate.

        client   x <- x - eta (g - c_i + c)      K times, from x_t
                 c_i+ = c_i - c + (x_t - x_i) / (K eta)
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t),   c += share * mean_i (c_i+ - c_i)

    share is S/N, so c stays the mean of all N clients' c_i; all start at zero.

    Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", Algorithm 1 and
    eq. (4), option II.
    """

    title: ClassVar[str] = "SCAFFOLD"
    client_slots: ClassVar[tuple[str, ...]] = ("control",)

    def init(self, params: Tensor) -> ServerState:
        """The server's control variate at zero."""
        return ServerState(params, {"control": params.new_zeros(params.shape)})

    def broadcast(self, state: ServerState) -> Vectors:
        """x_t and c."""
        return {"params": state.params, "control": state.slots["control"]}

    def plan(self, local: Local) -> Plan:
        """x <- x - eta g + eta (c_i - c)."""
        correction = local.slots["control"] - local.down["control"]
        return Plan(start=local.down["params"], rate=local.lr, shift=local.lr * correction)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Upload the model; keep the new c_i."""
        return {"params": w}, {"control": local.slots["control"] + _change(w, local.down, local.lr, local.steps)}

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """The model, and the change of c_i, which the server computes from it."""
        return {**upload, "control_change": _change(upload["params"], down, lr, steps)}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Average the models, and update c by the mean change over all N clients."""
        params = super().update(state, mean, round).params
        return ServerState(params, {"control": state.slots["control"] + round.share * mean["control_change"]})


def _change(w: Tensor, down: Vectors, lr: float, steps: Scalar) -> Tensor:
    """c_i+ - c_i = (x_t - x_i) / (K eta) - c."""
    return (down["params"] - w).div_(steps * lr).sub_(down["control"])
