"""FedAdagrad: Adagrad on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Round, ServerState, Vectors, check_fraction, check_positive

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedAdagrad(Algorithm):
    """FedAvg's local steps; the server takes an Adagrad step, with the mean change as gradient.

        client   x <- x - eta g                  K times, from x_t
        server   D = mean_i x_i - x_t
                 m = b1 m + (1 - b1) D,   v = v + D^2
                 x_{t+1} = x_t + eta_g m / (sqrt(v) + tau)

    m and v start at zero, as in FedAdam; the paper starts v at tau^2. b1 = 0, Adagrad without momentum, is what the
    paper's experiments use.

    Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.
    """

    title: ClassVar[str] = "FedAdagrad"
    default_server_lr: ClassVar[float] = 0.1

    beta1: float = 0.0
    """Decay of the mean change m."""
    tau: float = 1e-2
    """Added to sqrt(v); a smaller value adapts more strongly."""

    def __post_init__(self) -> None:
        check_fraction(beta1=self.beta1)
        check_positive(tau=self.tau)

    def init(self, params: Tensor) -> ServerState:
        """Both moments at zero."""
        return ServerState(params, {name: params.new_zeros(params.shape) for name in ("m", "v")})

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """One Adagrad step along the mean change."""
        change = mean["params"] - state.params
        m = self.beta1 * state.slots["m"] + (1 - self.beta1) * change
        v = state.slots["v"] + change**2
        return ServerState(state.params + round.server_lr * m / (v.sqrt() + self.tau), {"m": m, "v": v})
