"""The workloads: shapes of the paper's experiments on made-up data, 100 clients of which 10 train in a round."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedmim import Settings, Task
from fedmim.models import make


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
        return make(self.model, self.shape, 10)

    def task(self, clients: int = 100, samples: int | None = None) -> Task:
        """The federated problem; what is in the data does not matter for the time."""
        generator = torch.Generator().manual_seed(0)
        count = samples or self.samples
        data = [
            (torch.randn(count, *self.shape, generator=generator), torch.randint(0, 10, (count,), generator=generator))
            for _ in range(clients)
        ]
        return Task(self.module(), data, data[0])

    def settings(self, engine: str) -> Settings:
        """One endless run without evaluation."""
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
ENGINES = {"W1": "processes", "W2": "processes", "W3": "vectorised"}  # what `auto` takes for long runs
