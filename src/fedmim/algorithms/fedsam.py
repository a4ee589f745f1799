"""FedSAM: sharpness-aware local steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, check_positive
from fedmim.algorithms.sharp import sharp_point

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedSAM(Algorithm):
    """Local SGD with the gradient at the worst nearby point; two gradients per step on the same minibatch.

        client   x <- x - eta grad f_i(x + r g / ||g||)        K times, from x_t
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    The raw gradient gives the perturbation; the second gradient is clipped; weight decay uses x.

    Qu et al. 2022, "Generalized Federated Learning via Sharpness Aware Minimization", Algorithm 1.
    """

    title: ClassVar[str] = "FedSAM"
    gradients: ClassVar[int] = 2

    radius: float = 0.1
    """r, the distance at which the second gradient is taken."""

    def __post_init__(self) -> None:
        check_positive(radius=self.radius)

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """The gradient at w + r g / ||g||; at w if g is zero."""
        return local.grad(sharp_point(w, local, self.radius))
