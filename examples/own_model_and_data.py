"""Your own model, data and metric: regression with clients that have different inputs.

python examples/own_model_and_data.py
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fedmim

torch.manual_seed(0)


def client(shift: float, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs from the client's own region; all clients share the target function."""
    x = torch.randn(samples, 2) + shift
    return x, (x[:, :1] * x[:, 1:]).sin()


def r_squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The fraction of the targets' variance that is explained."""
    return 1 - (outputs - targets).square().mean() / targets.var()


task = fedmim.Task(
    model=nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1)),
    clients=[client(shift=i / 10 - 1, samples=20 + i) for i in range(20)],
    test=client(shift=0.0, samples=1000),
    loss=F.mse_loss,
    metric=r_squared,
)
settings = fedmim.Settings(rounds=100, participation=0.25, batch_size=10, lr=0.1, weight_decay=0.0)
for record in fedmim.rounds(fedmim.FedMIM(), task, settings):
    if record.round % 20 == 0:
        print(f"round {record.round}: R2 {record.test_accuracy:.3f}, client drift {record.consistency:.2e}")
