"""FedLESAM: sharpness-aware steps, perturbed along the global model's last change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Vectors, check_positive, of_length

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedLESAM(Algorithm):
    """Local SGD with the gradient at a point estimated to be uphill; one gradient per step.

        p = r unit(x_last - x_t)                 x_last: the model that this client received last
        client   x <- x - eta grad f_i(x + p)                  K times, from x_t
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    p is constant within a round, so the client iterates x + p from x_t + p and subtracts p at the end. Weight decay
    uses x + p. p is zero when a client takes part for the first time. The authors' code instead scales each tensor of
    the model by one number of the flat vector.

    Fan et al. 2024, "Locally Estimated Global Perturbations are Better than Local Perturbations for Federated
    Sharpness-aware Minimization", ICML, Algorithm 1.
    """

    title: ClassVar[str] = "FedLESAM"
    uploads_model: ClassVar[bool] = False
    client_slots: ClassVar[tuple[str, ...]] = ("received",)

    radius: float = 0.1
    """r, the distance at which the gradients are taken."""

    def __post_init__(self) -> None:
        check_positive(radius=self.radius)

    def plan(self, local: Local) -> Plan:
        """As FedAvg, from x_t + p."""
        return Plan(start=local.down["params"] + self._perturbation(local), rate=local.lr)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Upload the model; keep the received one."""
        x = local.down["params"]
        return {"params": w - self._perturbation(local)}, {"received": x.expand(w.shape)}

    def _perturbation(self, local: Local) -> Tensor:
        """p; zero for a client that has not taken part yet."""
        return of_length(self.radius, (1 - local.first) * (local.slots["received"] - local.down["params"]))
