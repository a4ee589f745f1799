"""SCAFFOLD: control variates that cancel each client's own drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, ServerState, Vectors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Local SGD, each gradient corrected by the server's control variate less the client's own.

        client   x <- x - eta (g - c_i + c)      K times, from x_t
                 c_i+ = c_i - c + (x_t - x_i) / (K eta)
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t),   c += share * mean_i (c_i+ - c_i)

    share is S/N, so that c stays the mean of all N clients' c_i; all start at zero.

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
        """The model and the change of c_i up; the new c_i kept."""
        drift = (local.down["params"] - w) / (local.steps * local.lr)
        change = drift - local.down["control"]
        return {"params": w, "control_change": change}, {"control": local.slots["control"] + change}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """The mean, and c moved by the mean change over all N clients."""
        params = super().update(state, mean, round).params
        return ServerState(params, {"control": state.slots["control"] + round.share * mean["control_change"]})
