"""Stock modules that compute the same numbers in less time: `adopt` puts them in, `release` takes them out."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from fedmim.models.small_maps import SmallMapConv2d, is_plain


class PoolFirst(nn.Sequential):
    """An nn.Sequential that takes the maximum over a window before ReLU, where it has ReLU before the maximum.

    ReLU is monotone, so the two commute, and so do their gradients, to the last bit; what is left for ReLU is a
    quarter of the work for a window of 2x2.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Each module in turn, but pooling before ReLU."""
        parts = list(self)
        for i, (before, part) in enumerate(pairwise(self)):
            if type(before) is nn.ReLU and pools(part):
                parts[i : i + 2] = part, before
        for part in parts:
            input = part(input)
        return input


def pools(part: nn.Module) -> bool:
    """Whether it is a maximum over windows, and nothing more."""
    return type(part) is nn.MaxPool2d and not part.return_indices


def adopt(module: nn.Module) -> None:
    """Let the parts of the module take shortcuts, where they have any."""
    for part in module.modules():
        if type(part) is nn.Conv2d and is_plain(part):
            part.__class__ = SmallMapConv2d
        elif type(part) is nn.Sequential:
            part.__class__ = PoolFirst


def release(module: nn.Module) -> None:
    """Make the module what it was before `adopt`."""
    for part in module.modules():
        if type(part) is SmallMapConv2d:
            part.__class__ = nn.Conv2d  # type: ignore[assignment]
        elif type(part) is PoolFirst:
            part.__class__ = nn.Sequential  # type: ignore[assignment]
