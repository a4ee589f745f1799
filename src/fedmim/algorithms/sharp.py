"""Sharp: sharpness-aware local steps around any method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Local, check_positive, of_length, require
from fedmim.algorithms.wrapper import Wrapper

if TYPE_CHECKING:
    from torch import Tensor


def sharp_point(w: Tensor, local: Local, radius: float) -> Tensor:
    """w + r g / ||g||, the worst point near by to first order; g is the raw gradient; w itself where g is zero."""
    return w + of_length(radius, local.grad(w))


@dataclass(frozen=True)
class Sharp(Wrapper):
    """The inner method with its gradients from the worst point near by, at two gradients per step.

        client   the inner method's, with grad f_i(w + r g / ||g||) in place of g = grad f_i(w)
        server   the inner method's

    The perturbation is by the raw gradient on the same minibatch; clipping is of the second one, weight decay is
    taken at w. Around FedAvg it is FedSAM, around FedCM MoFedSAM (Qu et al. 2022), around SCAFFOLD FedGAMMA (Dai et
    al. 2023).
    """

    suffix: ClassVar[str] = "sharp"

    radius: float = 0.1
    """r, how far away the second gradient is taken."""

    def __post_init__(self) -> None:
        check_positive(radius=self.radius)
        title = self.inner.title
        require(self.inner.gradients == 1, f"sharp: {title} is sharpness-aware already; set its radius instead")

    @property
    def gradients(self) -> int:  # type: ignore[override]
        """One to perturb, one to step."""
        return 2

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """The inner method's, at the worst point near by."""
        return self.inner.gradient(sharp_point(w, local, self.radius), local)
