"""FedProx: a proximal term against client drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, check_not_negative


@dataclass(frozen=True)
class FedProx(Algorithm):
    """Local SGD on f_i(x) + mu/2 ||x - x_t||^2.

        client   x <- x - eta (g + mu (x - x_t))               K times, from x_t
        server   x_{t+1} = x_t + eta_g (mean_i x_i - x_t)

    Li et al. 2020, "Federated Optimization in Heterogeneous Networks", Algorithm 2 and eq. (2).
    """

    title: ClassVar[str] = "FedProx"

    mu: float = 0.01
    """The weight of the proximal term."""

    def __post_init__(self) -> None:
        check_not_negative(mu=self.mu)

    def plan(self, local: Local) -> Plan:
        """x <- (1 - eta mu) x - eta g + eta mu x_t."""
        x, pull = local.down["params"], local.lr * self.mu
        return Plan(start=x, rate=local.lr, keep=1 - pull, shift=pull * x)
