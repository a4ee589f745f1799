"""The workloads: shapes of the paper's experiments on made-up data, 100 clients of which 10 train in a round.

The shapes and the data need torch alone, so that programs without fedmim can have the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from fedmim import Settings, Task


@dataclass(frozen=True)
class Workload:
    """A model, its input, and the clients' data and work."""

    name: str
    model: str
    shape: tuple[int, ...]
    samples: int  # a client
    epochs: int
    batch: int

    @property
    def steps(self) -> int:
        """Minibatch steps in a round, all clients together."""
        return 10 * self.epochs * -(-self.samples // self.batch)

    def module(self) -> torch.nn.Module:
        """The network."""
        from fedmim.models import make

        return make(self.model, self.shape, 10)

    def clients(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The clients' samples and labels; what is in them does not matter for the time."""
        generator = torch.Generator().manual_seed(0)
        return [
            (
                torch.randn(self.samples, *self.shape, generator=generator),
                torch.randint(0, 10, (self.samples,), generator=generator),
            )
            for _ in range(100)
        ]

    def task(self) -> Task:
        """The federated problem."""
        from fedmim import Task

        clients = self.clients()
        return Task(self.module(), clients, clients[0])

    def settings(self, engine: str) -> Settings:
        """One endless run without evaluation."""
        from fedmim import Settings

        return Settings(
            rounds=10**6,
            participation=0.1,
            local_epochs=self.epochs,
            batch_size=self.batch,
            lr=0.01,
            eval_every=10**6,
            engine=engine,  # type: ignore[arg-type]
        )


WORKLOADS = {
    "W1": Workload("W1", "lenet", (3, 32, 32), 500, 1, 50),
    "W2": Workload("W2", "resnet18", (3, 32, 32), 500, 1, 50),
    "W3": Workload("W3", "mlp", (1, 8, 8), 14, 5, 7),
}
