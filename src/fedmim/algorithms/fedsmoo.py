"""FedSMOO: FedDyn with sharpness-aware steps and perturbations that agree across clients."""

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
    check_positive,
    of_length,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedSMOO(Algorithm):
    """FedDyn's correction for the model and for the perturbation of sharpness-aware steps.

        client   s_i = r unit(grad f_i(x) - mu_i - s),   g = grad f_i(x + s_i),   mu_i += s_i - s
                 x <- x - eta (g - h_i + p (x - x_t))          K times, from x_t
                 h_i -= p (x_i - x_t),   uploads x_i and mu_i - s_i with the last s_i
        server   s = r unit(mean_i (mu_i - s_i)),   h -= p share (mean_i x_i - x_t),   x_{t+1} = mean_i x_i - h / p

    p is the paper's 1 / beta; share is S/N; all states start at zero. The server learning rate is 1. This is the
    paper's rule; the authors' simulator averages mu_i instead of mu_i - s_i.

    Sun et al. 2023, "Dynamic Regularized Sharpness Aware Minimization in Federated Learning: Approaching Global
    Consistency and Smooth Landscape", ICML, Algorithm 1.
    """

    title: ClassVar[str] = "FedSMOO"
    client_slots: ClassVar[tuple[str, ...]] = ("dual", "mu")
    any_server_lr: ClassVar[bool] = False
    gradients: ClassVar[int] = 2

    prox: float = 0.1
    """p, the weight of the proximal term."""
    radius: float = 0.1
    """r, the distance at which the second gradient is taken."""

    def __post_init__(self) -> None:
        check_positive(prox=self.prox, radius=self.radius)

    def init(self, params: Tensor) -> ServerState:
        """h and s at zero."""
        return ServerState(params, {name: params.new_zeros(params.shape) for name in ("dual", "perturbation")})

    def broadcast(self, state: ServerState) -> Vectors:
        """x_t and s."""
        return {"params": state.params, "perturbation": state.slots["perturbation"]}

    def plan(self, local: Local) -> Plan:
        """x <- (1 - eta p) x - eta g + eta (h_i + p x_t); mu_i and s_i are carried from step to step."""
        x, lr, mu = local.down["params"], local.lr, local.slots["mu"]
        shift = lr * (local.slots["dual"] + self.prox * x)
        return Plan(x, lr, 1 - lr * self.prox, shift, carry={"mu": mu, "s": mu.new_zeros(mu.shape)})

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """Update s_i and mu_i; the gradient at w + s_i."""
        mu, s = local.carry["mu"], local.down["perturbation"]
        own = local.carry["s"].copy_(of_length(self.radius, local.grad(w) - mu - s))
        mu.add_(own - s)
        return local.grad(w + own)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Upload the model and mu_i - s_i; keep the new h_i and mu_i."""
        mu, dual = local.carry["mu"], local.slots["dual"] - self.prox * (w - local.down["params"])
        return {"params": w, "perturbation": mu - local.carry["s"]}, {"dual": dual, "mu": mu}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Update h by the mean change over all N clients, correct the mean model by h, and compute the new s."""
        dual = state.slots["dual"] - self.prox * round.share * (mean["params"] - state.params)
        perturbation = of_length(self.radius, mean["perturbation"])
        return ServerState(mean["params"] - dual / self.prox, {"dual": dual, "perturbation": perturbation})
