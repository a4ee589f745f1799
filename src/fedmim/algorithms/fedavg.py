"""Federated averaging."""

from dataclasses import dataclass
from typing import ClassVar

from fedmim.algorithms.base import Algorithm


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Local SGD, then the mean of the clients' models.

        client   x <- x - eta g                  K times, from x_t
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", Algorithm 1.
    """

    title: ClassVar[str] = "FedAvg"
