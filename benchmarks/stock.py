"""The networks of the workloads in plain PyTorch, for programs that have torch but not fedmim."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch import Tensor, nn

Shape = tuple[int, ...]
CLASSES = 10


def make(name: str, shape: Shape) -> nn.Module:
    """The named network for inputs of this shape."""
    return MODELS[name](shape)


def mlp(shape: Shape) -> nn.Module:
    """One hidden layer of 64 units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 64), nn.ReLU(), nn.Linear(64, CLASSES))


def lenet(shape: Shape) -> nn.Module:
    """Two 5x5 convolutions of 64 channels, each with ReLU and pooling, then 384 and 192 hidden units."""
    channels, height, width = shape
    after = 64 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(after, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, CLASSES),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with GroupNorm (2 groups) and a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.GroupNorm(2, out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.GroupNorm(2, out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.GroupNorm(2, out))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """relu(shortcut(x) + block(x))."""
        out: Tensor = self.relu(self.block(x) + self.shortcut(x))
        return out


def resnet18(shape: Shape) -> nn.Module:
    """ResNet-18 with the ImageNet stem and GroupNorm (2 groups) instead of batch norm."""
    stages: list[nn.Module] = []
    width = 64
    for stage, out in enumerate((64, 128, 256, 512)):
        stages += [BasicBlock(width, out, 1 if stage == 0 else 2), BasicBlock(out, out, 1)]
        width = out
    return nn.Sequential(
        nn.Conv2d(shape[0], 64, 7, 2, 3, bias=False),
        nn.GroupNorm(2, 64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, CLASSES),
    )


MODELS: dict[str, Callable[[Shape], nn.Module]] = {"mlp": mlp, "lenet": lenet, "resnet18": resnet18}
