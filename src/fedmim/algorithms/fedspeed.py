"""FedSpeed: FedDyn's correction, with a second gradient one step uphill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Vectors, check_not_negative, check_positive, require

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedSpeed(Algorithm):
    """Local SGD with a proximal term, a correction of its bias, and a second gradient taken uphill.

        client   g1 = grad f_i(x),   g = (1 - a) g1 + a grad f_i(x + r g1)
                 x <- x - eta (g - h_i + p (x - x_t))          K times, from x_t
                 h_i -= p (x_i - x_t),   uploads x_i - h_i / p
        server   x_{t+1} = x_t + eta_g (mean_i (x_i - h_i / p) - x_t)

    p is the paper's 1 / lambda. Both gradients use the same minibatch; g1 is not normalised. The recorded client drift
    (`Record.consistency`) is that of the uploads. This is the paper's rule; the authors' simulator averages the models
    x_i and corrects the mean by all clients' h_i, as FedDyn does.

    Sun et al. 2023, "FedSpeed: Larger Local Interval, Less Communication Round, and Higher Generalization Accuracy",
    ICLR, Algorithm 1.
    """

    title: ClassVar[str] = "FedSpeed"
    uploads_model: ClassVar[bool] = False
    client_slots: ClassVar[tuple[str, ...]] = ("dual",)
    gradients: ClassVar[int] = 2

    prox: float = 0.1
    """p, the weight of the proximal term."""
    rho: float = 0.1
    """r, the length of the uphill step relative to the gradient."""
    alpha: float = 1.0
    """a, the weight of the uphill gradient."""

    def __post_init__(self) -> None:
        check_positive(prox=self.prox)
        check_not_negative(rho=self.rho)
        require(0 <= self.alpha <= 1, f"alpha: must be between 0 and 1, got {self.alpha}")

    def plan(self, local: Local) -> Plan:
        """x <- (1 - eta p) x - eta g + eta (h_i + p x_t)."""
        x, lr = local.down["params"], local.lr
        shift = lr * (local.slots["dual"] + self.prox * x)
        return Plan(start=x, rate=lr, keep=1 - lr * self.prox, shift=shift)

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """(1 - a) g1 + a grad f_i(w + r g1)."""
        g = local.grad(w)
        return g.lerp(local.grad(w.add(g, alpha=self.rho)), self.alpha)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Upload the model minus the new h_i / p; keep the new h_i."""
        dual = local.slots["dual"] - self.prox * (w - local.down["params"])
        return {"params": w - dual / self.prox}, {"dual": dual}
