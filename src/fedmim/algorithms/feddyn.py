"""FedDyn: dynamic regularisation that aligns local optima with the global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, ServerState, Vectors, check_positive

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """Local SGD on f_i(x) - <h_i, x> + a/2 ||x - x_t||^2.

        client   x <- x - eta (g - h_i + a (x - x_t))          K times, from x_t
                 h_i -= a (x_i - x_t)
        server   h -= a share (mean_i x_i - x_t),   x_{t+1} = mean_i x_i - h / a

    share is S/N, so h stays the mean of all N clients' h_i; all start at zero. The server learning rate is 1.

    Acar et al. 2021, "Federated Learning Based on Dynamic Regularization", Algorithm 1.
    """

    title: ClassVar[str] = "FedDyn"
    client_slots: ClassVar[tuple[str, ...]] = ("dual",)
    any_server_lr: ClassVar[bool] = False

    alpha: float = 0.1
    """a, the weight of the proximal term."""

    def __post_init__(self) -> None:
        check_positive(alpha=self.alpha)

    def init(self, params: Tensor) -> ServerState:
        """h at zero."""
        return ServerState(params, {"dual": params.new_zeros(params.shape)})

    def plan(self, local: Local) -> Plan:
        """x <- (1 - eta a) x - eta g + eta (h_i + a x_t)."""
        x = local.down["params"]
        return Plan(
            start=x,
            rate=local.lr,
            keep=1 - local.lr * self.alpha,
            shift=local.lr * (local.slots["dual"] + self.alpha * x),
        )

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Upload the model; keep the new h_i."""
        return {"params": w}, {"dual": local.slots["dual"] - self.alpha * (w - local.down["params"])}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Update h by the mean change over all N clients, and correct the mean model by h."""
        dual = state.slots["dual"] - self.alpha * round.share * (mean["params"] - state.params)
        return ServerState(mean["params"] - dual / self.alpha, {"dual": dual})
