"""The built-in networks, for an input shape (C, H, W), (features,) or (tokens,), and a number of classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from fedmim.errors import UserError, unknown
from fedmim.memory import check_memory
from fedmim.models.text_networks import lstm, transformer

Shape = tuple[int, ...]


def make_model(name: str, shape: Shape, classes: int, seed: int = 0, tokens: int | None = None) -> nn.Module:
    """The named network with initial weights from the seed; does not change the global generator.

    For text, `tokens` is the number of different tokens.
    """
    if name not in MODELS:
        raise unknown("model", name, [*MODELS, "file.py:Name"])
    if (tokens is not None) != (name in TEXT_MODELS):
        raise UserError(f"model: {name} is {'only' if tokens is None else 'not'} for text; use {_suitable(tokens)}")
    build = partial(MODELS[name], shape, classes) if tokens is None else partial(MODELS[name], shape, classes, tokens)
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):  # shapes only
            parameters = sum(each.numel() for each in build().parameters())
        check_memory(
            16 * parameters,  # the model, its gradient, an upload and the mean
            f"model: {name} for inputs of {'x'.join(map(str, shape))} and {classes:,} classes",
            "use a smaller model or smaller inputs, or number the classes from 0 without gaps",
        )
        torch.manual_seed(seed)
        return build()


def logistic(shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


def mlp(shape: Shape, classes: int) -> nn.Module:
    """One hidden layer of 64 units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 64), nn.ReLU(), nn.Linear(64, classes))


def mlp2(shape: Shape, classes: int) -> nn.Module:
    """Two hidden layers of 100 units."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, classes)
    )


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Two 3x3 convolutions of stride 2 (16 and 32 channels), 64 hidden units; small and fast on a CPU.

    Using stride instead of pooling makes it three times as fast on a CPU.
    """
    channels, height, width = _image("cnn", shape, smallest=4)
    after = 32 * -(-height // 4) * -(-width // 4)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(after, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def lenet(shape: Shape, classes: int) -> nn.Module:
    """Two 5x5 convolutions (64 channels) with pooling, 384 and 192 hidden units; from the FedAvg and FedDyn papers."""
    channels, height, width = _image("lenet", shape, smallest=16)
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
        nn.Linear(192, classes),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with GroupNorm (2 groups) and a shortcut, He et al. 2016."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(2, out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, out)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.GroupNorm(2, out))

    def forward(self, x: Tensor) -> Tensor:
        """relu(shortcut(x) + block(x))."""
        h = self.relu(self.norm1(self.conv1(x)))
        out: Tensor = self.relu(self.norm2(self.conv2(h)) + self.shortcut(x))
        return out


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """ResNet-18 with the ImageNet stem and GroupNorm (2 groups), assumed to be the paper's network."""
    channels, _, _ = _image("resnet18", shape, smallest=8)
    stages: list[nn.Module] = []
    width = 64
    for stage, out in enumerate((64, 128, 256, 512)):
        stages += [BasicBlock(width, out, 1 if stage == 0 else 2), BasicBlock(out, out, 1)]
        width = out
    network = nn.Sequential(
        nn.Conv2d(channels, 64, 7, 2, 3, bias=False),
        nn.GroupNorm(2, 64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


def _image(name: str, shape: Shape, smallest: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < smallest:
        size = "x".join(map(str, shape))
        raise UserError(
            f"model: {name} needs images of at least {smallest}x{smallest} pixels, but the data has shape {size}; "
            "use mlp or logistic"
        )
    return shape[0], shape[1], shape[2]


def _suitable(tokens: int | None) -> str:
    return " or ".join(name for name in MODELS if (name in TEXT_MODELS) == (tokens is not None))


_NETWORKS: tuple[Callable[..., nn.Module], ...] = (logistic, mlp, mlp2, cnn, lenet, resnet18)
TEXT_MODELS = {network.__name__: network for network in (lstm, transformer)}
MODELS: dict[str, Callable[..., nn.Module]] = {network.__name__: network for network in _NETWORKS} | TEXT_MODELS
"""The built-in networks, by name."""
