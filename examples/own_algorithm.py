"""Your own algorithm in 15 lines: FedAvg with heavy-ball momentum on the clients.

python examples/own_algorithm.py
fedmim compare --methods fedavg,fedmim,examples/own_algorithm.py:LocalMomentum
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedmim import Algorithm, Local, Plan, Settings, Task, simulate


@dataclass(frozen=True)
class LocalMomentum(Algorithm):
    """v <- momentum v + g,  x <- x - eta v  on the client; v starts at zero in each round."""

    title: ClassVar[str] = "Local momentum"
    momentum: float = 0.5
    """The fraction of the last step that is kept."""

    def plan(self, local: Local) -> Plan:
        """As FedAvg, with a vector v that is carried from step to step."""
        x = local.down["params"]
        return Plan(start=x, rate=local.lr, carry={"v": torch.zeros_like(x)})

    def step(self, w: torch.Tensor, g: torch.Tensor, plan: Plan) -> torch.Tensor:
        """One heavy-ball step. g includes clipping and weight decay; w and plan.carry may be changed in place."""
        v = plan.carry["v"].mul_(self.momentum).add_(plan.rate * g)
        return w.sub_(v)


if __name__ == "__main__":
    task = Task.named("digits", split="dirichlet:0.1", clients=100, model="mlp")
    result = simulate(LocalMomentum(), task, Settings(rounds=50, batch_size=5))
    print(f"accuracy after 50 rounds: {result.history[-1].test_accuracy:.1%}")
