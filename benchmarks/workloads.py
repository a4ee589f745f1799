"""The workloads: shapes of the paper's experiments with random data, 10 of 100 clients per round.

The shapes and the data need only torch, so that programs without fedmim can use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from benchmarks import stock

if TYPE_CHECKING:
    from fedmim import Execution, Settings, Task
    from fedmim.simulation.settings import Engine


@dataclass(frozen=True)
class Workload:
    """A model, its input, and the clients' data and work."""

    name: str
    model: str
    shape: tuple[int, ...]
    samples: int  # per client
    epochs: int
    batch: int

    @property
    def steps(self) -> int:
        """Minibatch steps per round, over all clients."""
        return 10 * self.epochs * -(-self.samples // self.batch)

    def module(self) -> torch.nn.Module:
        """The network."""
        from fedmim.models import make_model

        return make_model(self.model, self.shape, 10)

    def clients(self, count: int = 100, samples: int | None = None) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The clients' samples and labels; their values do not affect the time."""
        generator = torch.Generator().manual_seed(0)
        each = samples or self.samples
        return [
            (torch.randn(each, *self.shape, generator=generator), torch.randint(0, 10, (each,), generator=generator))
            for _ in range(count)
        ]

    def task(self, clients: int = 100, samples: int | None = None, own_module: bool = False) -> Task:
        """The task; with `own_module`, its network is a plain PyTorch module, as a user would write it."""
        from fedmim import Task

        data = self.clients(clients, samples)
        return Task(stock.make(self.model, self.shape) if own_module else self.module(), data, data[0])

    def protocol(self, engine: Engine) -> tuple[Settings, Execution]:
        """An endless run without evaluation."""
        from fedmim import Execution, Settings

        settings = Settings(
            rounds=10**6,
            participation=0.1,
            local_epochs=self.epochs,
            batch_size=self.batch,
            lr=0.01,
            eval_every=10**6,
        )
        return settings, Execution(engine)


WORKLOADS = {
    "W1": Workload("W1", "lenet", (3, 32, 32), 500, 1, 50),
    "W2": Workload("W2", "resnet18", (3, 32, 32), 500, 1, 50),
    "W3": Workload("W3", "mlp", (1, 8, 8), 14, 5, 7),
}
# The choice of `auto` for long runs.
ENGINES: dict[str, Engine] = {"W1": "processes", "W2": "processes", "W3": "vectorised"}
