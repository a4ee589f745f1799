"""FedInit: clients start away from their own last model, on the other side of the global model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Vectors, check_not_negative

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedInit(Algorithm):
    """Local SGD from a relaxed start: x_t moved away from the client's last model.

        client   x = x_t + b (x_t - w_i)                       w_i: the client's last model, at first x_t
                 x <- x - eta g                  K times
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    Sun et al. 2023, "Understanding How Consistency Works in Federated Learning via Stage-wise Relaxed Initialization",
    NeurIPS, Algorithm 1.
    """

    title: ClassVar[str] = "FedInit"
    client_slots: ClassVar[tuple[str, ...]] = ("last",)

    beta: float = 0.1
    """b, the distance from x_t to the start, relative to the distance from x_t to the client's last model."""

    def __post_init__(self) -> None:
        check_not_negative(beta=self.beta)

    def plan(self, local: Local) -> Plan:
        """As FedAvg, from x_t + b (x_t - w_i)."""
        x = local.down["params"]
        return Plan(start=x + self.beta * (1 - local.first) * (x - local.slots["last"]), rate=local.lr)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Upload the model and keep it."""
        return {"params": w}, {"last": w}
