"""MoFedSAM: FedSAM's gradients with FedCM's momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Local, check_positive
from fedmim.algorithms.fedcm import FedCM
from fedmim.algorithms.sharp import sharp_point

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MoFedSAM(FedCM):
    """FedCM with the gradient at the worst nearby point; two gradients per step on the same minibatch.

        client   x <- x - eta (a grad f_i(x + r g / ||g||) + (1 - a) D_t / K)          K times, from x_t
        server   D_{t+1} = (x_t - mean_i x_i) / eta,   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    Qu et al. 2022, "Generalized Federated Learning via Sharpness Aware Minimization", Algorithm 2.
    """

    title: ClassVar[str] = "MoFedSAM"
    gradients: ClassVar[int] = 2

    radius: float = 0.1
    """r, the distance at which the second gradient is taken."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(radius=self.radius)

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """The gradient at w + r g / ||g||."""
        return local.grad(sharp_point(w, local, self.radius))
