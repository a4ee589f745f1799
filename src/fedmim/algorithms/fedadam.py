"""FedAdam: Adam on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Round, ServerState, Vectors, check_fraction, check_positive

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedAdam(Algorithm):
    """FedAvg's local steps; the server takes an Adam step, with the mean change as gradient.

        client   x <- x - eta g                  K times, from x_t
        server   D = mean_i x_i - x_t
                 m = b1 m + (1 - b1) D,   v = b2 v + (1 - b2) D^2
                 x_{t+1} = x_t + eta_g m / (sqrt(v) + tau)

    No bias correction, as in the paper. m and v start at zero, as is usual in practice; the paper starts v at tau^2.

    Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.
    """

    title: ClassVar[str] = "FedAdam"
    default_server_lr: ClassVar[float] = 0.1

    beta1: float = 0.9
    """Decay of the mean change m."""
    beta2: float = 0.99
    """Decay of the squared change v."""
    tau: float = 1e-2
    """Added to sqrt(v); a smaller value adapts more strongly."""

    def __post_init__(self) -> None:
        check_fraction(beta1=self.beta1, beta2=self.beta2)
        check_positive(tau=self.tau)

    def init(self, params: Tensor) -> ServerState:
        """Both moments at zero."""
        return ServerState(params, {name: params.new_zeros(params.shape) for name in ("m", "v")})

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """One server step along the mean change."""
        change = mean["params"] - state.params
        m = self.beta1 * state.slots["m"] + (1 - self.beta1) * change
        v = self.second_moment(state.slots["v"], change**2)
        return ServerState(state.params + round.server_lr * m / (v.sqrt() + self.tau), {"m": m, "v": v})

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The next v from the squared change."""
        return self.beta2 * v + (1 - self.beta2) * square
