"""FedACG: clients start from an accelerated point, with a proximal term to it."""

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
    """Local SGD from a point that the server's momentum has already moved, held near it by a proximal term.

        v = x_t + lambda m_t
        client   x <- x - eta (g + mu (x - v))                 K times, from v
        server   m_{t+1} = lambda m_t + mean_i (x_i - v),   x_{t+1} = x_t + m_{t+1} = mean_i x_i

    It is Leap(FedProx) with one weight at the learning rate eta / (1 - lambda). The authors' code has the proximal term
    without its 1/2, which doubles mu, and lets the learning rate fall within a round; this is the paper's rule. The
    server's learning rate is 1.

    Kim et al. 2024, "Communication-Efficient Federated Learning with Accelerated Client Gradient", CVPR, Algorithm 1.
    """

    title: ClassVar[str] = "FedACG"
    any_server_lr: ClassVar[bool] = False
    inertial: ClassVar[bool] = True

    momentum: float = 0.85
    """lambda, how much of the last global change is taken ahead of the round."""
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
        """The mean, and the change that led to it."""
        return ServerState(mean["params"], {"momentum": mean["params"] - state.params})
