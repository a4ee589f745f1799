"""FedACG: clients start from an accelerated point, with a proximal term toward it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import (
    Algorithm,
    Local,
    Plan,
    Round,
    ServerState,
    Vectors,
    check_fraction,
    check_not_negative,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedACG(Algorithm):
    """Local SGD from x_t moved by the server's momentum, with a proximal term toward that start.

        v = x_t + lambda m_t
        client   x <- x - eta (g + mu (x - v))                 K times, from v
        server   m_{t+1} = lambda m_t + mean_i (x_i - v),   x_{t+1} = x_t + m_{t+1} = mean_i x_i

    Equal to Leap(FedProx) with one weight and learning rate eta / (1 - lambda). The server learning rate is 1. This is
    the paper's rule; the authors' code omits the 1/2 of the proximal term, which doubles mu, and decays the learning
    rate within a round.

    Kim et al. 2024, "Communication-Efficient Federated Learning with Accelerated Client Gradient", CVPR, Algorithm 1.
    """

    title: ClassVar[str] = "FedACG"
    any_server_lr: ClassVar[bool] = False
    inertial: ClassVar[bool] = True

    momentum: float = 0.85
    """lambda, the fraction of the last global change that is added before the round."""
    mu: float = 0.01
    """The weight of the proximal term."""

    def __post_init__(self) -> None:
        check_fraction(momentum=self.momentum)
        check_not_negative(mu=self.mu)

    def init(self, params: Tensor) -> ServerState:
        """Momentum at zero."""
        return ServerState(params, {"momentum": params.new_zeros(params.shape)})

    def broadcast(self, state: ServerState) -> Vectors:
        """v."""
        return {"params": state.params.add(state.slots["momentum"], alpha=self.momentum)}

    def plan(self, local: Local) -> Plan:
        """x <- (1 - eta mu) x - eta g + eta mu v."""
        v, pull = local.down["params"], local.lr * self.mu
        return Plan(start=v, rate=local.lr, keep=1 - pull, shift=pull * v)

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Average the models; the momentum is the change of the global model."""
        return ServerState(mean["params"], {"momentum": mean["params"] - state.params})
