"""Your own model, data and metric: regression with clients that have different inputs.

python examples/own_model_and_data.py
fedmim compare --data examples/own_model_and_data.py:make_task --participation 0.25 --batch-size 10
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fedmim


def client(shift: float, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs from the client's own region; all clients share the target function."""
    x = torch.randn(samples, 2) + shift
    return x, (x[:, :1] * x[:, 1:]).sin()


def r_squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The fraction of the targets' variance that is explained."""
    return 1 - (outputs - targets).square().mean() / targets.var()


def make_task() -> fedmim.Task:
    """The model, the data of 20 clients, the test data, the loss and the metric."""
    return fedmim.Task(
        model=nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1)),
        clients=[client(shift=i / 10 - 1, samples=20 + i) for i in range(20)],
        test=client(shift=0.0, samples=1000),
        loss=F.mse_loss,
        metric=r_squared,
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    task = make_task()
    settings = fedmim.Settings(rounds=100, participation=0.25, batch_size=10, lr=0.1, weight_decay=0.0)
    for record in fedmim.rounds(fedmim.FedMIM(), task, settings):
        if record.round % 20 == 0:
            print(f"round {record.round}: R2 {record.test_accuracy:.3f}, client drift {record.consistency:.2e}")
    print(fedmim.compare([fedmim.FedAvg(), fedmim.FedMIM()], task, settings, progress=False))
