"""GHBM: heavy-ball momentum on the clients, from the last tau rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, ServerState, Vectors, check_fraction, require
from fedmim.algorithms.increments import no_increments, weighted_sum, with_increment

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GHBM(Algorithm):
    """Local SGD with momentum from the mean of the last tau global increments.

        client   x <- x - eta g + b (x_t - x_{t-tau}) / (tau K)          K times, from x_t; K: the client's steps
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    Equal to FedMIM with tau equal weights b / tau, no look-ahead, and learning rate eta / (1 - b). tau = N / S covers
    about as many rounds as it takes for every client to take part. Before round tau the missing increments are zero;
    the authors' code sends no momentum until tau models exist.

    Zaccone et al. 2025, "Communication-Efficient Heterogeneous Federated Learning with Generalized Heavy-Ball
    Momentum", TMLR, eq. (7) and Algorithm 1.
    """

    title: ClassVar[str] = "GHBM"
    inertial: ClassVar[bool] = True

    momentum: float = 0.9
    """b, the weight of the mean increment."""
    tau: int = 10
    """The number of past increments; the authors use N / S."""

    def __post_init__(self) -> None:
        check_fraction(momentum=self.momentum)
        require(isinstance(self.tau, int) and self.tau >= 1, f"tau: must be a whole number above 0, got {self.tau}")

    @property
    def past_models(self) -> int:
        """tau: the oldest increment needs x_{t-tau}."""
        return self.tau

    def init(self, params: Tensor) -> ServerState:
        """No increments yet."""
        return ServerState(params, no_increments(self.tau, params))

    def broadcast(self, state: ServerState) -> Vectors:
        """x_t and b times the mean increment."""
        inertia = weighted_sum(state.slots, (self.momentum / self.tau,) * self.tau)
        return {"params": state.params} | ({} if inertia is None else {"inertia": inertia})

    def rebuild_broadcast(self, models: Sequence[Tensor]) -> Vectors:
        """The broadcast from x_t, x_{t-1}, ..., x_{t-tau}."""
        increments = {f"increment_{j}": models[j] - models[j + 1] for j in range(self.tau)}
        return self.broadcast(ServerState(models[0], increments))

    def plan(self, local: Local) -> Plan:
        """x <- x - eta g + inertia / K."""
        inertia = local.down.get("inertia")
        shift = None if inertia is None else inertia / local.steps
        return Plan(start=local.down["params"], rate=local.lr, shift=shift)

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Average the models and add the newest increment."""
        params = super().update(state, mean, round).params
        return ServerState(params, with_increment(state.slots, self.tau, params - state.params))
