"""FedYogi: Yogi on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.fedadam import FedAdam

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAvg's local steps; the server takes a Yogi step, with the mean change as gradient.

        client   x <- x - eta g                  K times, from x_t
        server   D = mean_i x_i - x_t
                 m = b1 m + (1 - b1) D,   v = v - (1 - b2) D^2 sign(v - D^2)
                 x_{t+1} = x_t + eta_g m / (sqrt(v) + tau)

    m and v start at zero, as in FedAdam; the paper starts v at tau^2.

    Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.
    """

    title: ClassVar[str] = "FedYogi"

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """v - (1 - b2) D^2 sign(v - D^2)."""
        return v - (1 - self.beta2) * square * (v - square).sign()
