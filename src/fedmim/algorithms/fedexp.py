"""FedExP: a server learning rate that adapts to how much the clients differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Round, ServerState, Vectors, check_positive

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedExP(Algorithm):
    """FedAvg's local steps; the server extrapolates along the mean change, further if clients disagree.

        client   x <- x - eta g                  K times, from x_t
        server   D_i = x_t - x_i,   eta_g = max(1, mean_i ||D_i||^2 / (2 (||mean_i D_i||^2 + eps)))
                 x_{t+1} = x_t - eta_g mean_i D_i

    The iterates oscillate, so the evaluated and returned model is the mean of the last two, as in the paper.

    Jhunjhunwala et al. 2023, "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR, eq. (8), Algorithm 1.
    """

    title: ClassVar[str] = "FedExP"
    any_server_lr: ClassVar[bool] = False

    epsilon: float = 1e-3
    """eps, added to the squared norm of the mean change."""

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)

    def init(self, params: Tensor) -> ServerState:
        """The previous model is x_0."""
        return ServerState(params, {"previous": params})

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """The model, and ||D_i||^2, which the server computes."""
        change = upload["params"] - down["params"]
        return {**upload, "square": change.dot(change).reshape(1)}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Move x_t along the mean change with the adaptive learning rate."""
        change = mean["params"] - state.params
        rate = (mean["square"] / (2 * (change.dot(change) + self.epsilon))).clamp_min(1.0)
        return ServerState(state.params + rate * change, {"previous": state.params})

    def output(self, state: ServerState) -> Tensor:
        """The mean of the last two iterates."""
        return (state.params + state.slots["previous"]) / 2
