"""FedAvgM: momentum on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Round, ServerState, Vectors, check_fraction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedAvgM(Algorithm):
    """FedAvg's local steps; the server applies the mean change with momentum.

        client   x <- x - eta g                  K times, from x_t
        server   v = b v + (x_t - mean_i x_i),   x_{t+1} = x_t - eta_g v

    Hsu et al. 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", Section 4.3.
    """

    title: ClassVar[str] = "FedAvgM"

    momentum: float = 0.9
    """b, the fraction of the last server step that is kept."""

    def __post_init__(self) -> None:
        check_fraction(momentum=self.momentum)

    def init(self, params: Tensor) -> ServerState:
        """Momentum at zero."""
        return ServerState(params, {"momentum": params.new_zeros(params.shape)})

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """One heavy-ball step along the mean change."""
        momentum = self.momentum * state.slots["momentum"] + (state.params - mean["params"])
        return ServerState(state.params - round.server_lr * momentum, {"momentum": momentum})
