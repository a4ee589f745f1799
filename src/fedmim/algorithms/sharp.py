"""Sharp: sharpness-aware local steps for any method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Local, check_positive, of_length, require
from fedmim.algorithms.wrapper import Wrapper

if TYPE_CHECKING:
    from torch import Tensor


def sharp_point(w: Tensor, local: Local, radius: float) -> Tensor:
    """w + r g / ||g||, to first order the worst nearby point; g is the raw gradient. If g is zero, w."""
    return w + of_length(radius, local.grad(w))


@dataclass(frozen=True)
class Sharp(Wrapper):
    """The inner method with its gradients at the worst nearby point; two gradients per step.

        client   as the inner method, with grad f_i(w + r g / ||g||) instead of g = grad f_i(w)
        server   as the inner method

    The raw gradient on the same minibatch gives the perturbation; the second gradient is clipped; weight decay uses w.
    Around FedAvg it is FedSAM, around FedCM MoFedSAM (Qu et al. 2022), around SCAFFOLD FedGAMMA (Dai et al. 2023).
    """

    suffix: ClassVar[str] = "sharp"

    radius: float = 0.1
    """r, the distance at which the second gradient is taken."""

    def __post_init__(self) -> None:
        check_positive(radius=self.radius)
        title = self.inner.title
        require(self.inner.gradients == 1, f"sharp: {title} is already sharpness-aware; set its radius instead")

    @property
    def gradients(self) -> int:  # type: ignore[override]
        """Two: one for the perturbation, one for the step."""
        return 2

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """The inner method's gradient at the worst nearby point."""
        return self.inner.gradient(sharp_point(w, local, self.radius), local)
