"""FedNova: changes are divided by the number of local steps, so clients with more steps do not count more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmim.algorithms.base import Algorithm, Round, ServerState, Vectors


@dataclass(frozen=True)
class FedNova(Algorithm):
    """FedAvg's local steps; the server averages the clients' changes per step.

        client   x <- x - eta g                  K_i times, from x_t
        server   x_{t+1} = x_t - eta_g (mean_i K_i) mean_i (x_t - x_i) / K_i

    If all clients take the same number of steps, it equals FedAvg.

    Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS,
    eq. (6) with a_i = (1, ..., 1) and tau_eff the mean of K_i.
    """

    title: ClassVar[str] = "FedNova"

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """The model, the change per step, and K_i."""
        w = upload["params"]
        return {"params": w, "per_step": (w - down["params"]) / steps, "steps": w.new_tensor([steps])}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """Move x_t by the mean number of steps times the mean change per step."""
        change = round.server_lr * mean["steps"] * mean["per_step"]
        return ServerState(state.params + change)
