"""FedGAMMA: FedSAM's gradients with SCAFFOLD's control variates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Local, check_positive
from fedmim.algorithms.scaffold import Scaffold
from fedmim.algorithms.sharp import sharp_point

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedGamma(Scaffold):
    """SCAFFOLD with the gradient at the worst nearby point; two gradients per step on the same minibatch.

        client   x <- x - eta (grad f_i(x + r g / ||g||) - c_i + c)          K times, from x_t
                 c_i+ = c_i - c + (x_t - x_i) / (K eta)
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t),   c += share * mean_i (c_i+ - c_i)

    Dai et al. 2023, "FedGAMMA: Federated Learning With Global Sharpness-Aware Minimization", IEEE TNNLS, Algorithm 1.
    """

    title: ClassVar[str] = "FedGAMMA"
    gradients: ClassVar[int] = 2

    radius: float = 0.1
    """r, the distance at which the second gradient is taken."""

    def __post_init__(self) -> None:
        check_positive(radius=self.radius)

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """The gradient at w + r g / ||g||."""
        return local.grad(sharp_point(w, local, self.radius))
