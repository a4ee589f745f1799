"""Rewrites of stock modules that give the same numbers in less time: `adopt` puts them in, `release` takes them out."""

from __future__ import annotations

from torch import Tensor, nn

from fedmim.models.small_maps import SmallMapConv2d, is_plain


class LateReLU(nn.Sequential):
    """An nn.Sequential that takes ReLU after the pooling and flattening that follow it.

    ReLU is monotone and acts on each element, so they commute, and so do their gradients, to the last bit. After a
    maximum over 2x2 windows a quarter of the elements is left for it, and after flattening they lie in one piece.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Each module in turn, but ReLU late."""
        parts = list(self)
        for i, part in enumerate(parts[1:]):
            if type(parts[i]) is nn.ReLU and commutes_with_relu(part):
                parts[i : i + 2] = part, parts[i]
        for part in parts:
            input = part(input)
        return input


def commutes_with_relu(part: nn.Module) -> bool:
    """Whether it takes maxima over windows, and nothing more, or moves elements only."""
    return type(part) is nn.Flatten or (type(part) is nn.MaxPool2d and not part.return_indices)


def adopt(module: nn.Module) -> None:
    """Replace the parts of the module that have an exact rewrite."""
    for part in module.modules():
        if type(part) is nn.Conv2d and is_plain(part):
            part.__class__ = SmallMapConv2d
        elif type(part) is nn.Sequential:
            part.__class__ = LateReLU


def release(module: nn.Module) -> None:
    """Make the module what it was before `adopt`."""
    for part in module.modules():
        if type(part) is SmallMapConv2d:
            part.__class__ = nn.Conv2d  # type: ignore[assignment]
        elif type(part) is LateReLU:
            part.__class__ = nn.Sequential  # type: ignore[assignment]
