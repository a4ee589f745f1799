"""Faster versions of standard modules with the same results: `adopt` inserts them, `release` removes them."""

from __future__ import annotations

from itertools import product

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


def adopt(module: nn.Module) -> None:
    """Replace the submodules that have an exact rewrite."""
    for part in module.modules():
        if type(part) is nn.Conv2d and is_plain(part):
            part.__class__ = SmallMapConv2d
        elif type(part) is nn.Sequential:
            part.__class__ = LateReLU


def release(module: nn.Module) -> None:
    """Undo `adopt`."""
    for part in module.modules():
        if type(part) in (SmallMapConv2d, LateReLU):
            part.__class__ = type(part).__base__  # type: ignore[assignment]


class LateReLU(nn.Sequential):
    """An nn.Sequential that applies ReLU after the pooling and flattening that follow it.

    ReLU is monotone and elementwise, so it commutes with them, and outputs and gradients are bit-identical. After 2x2
    max pooling only a quarter of the elements is left, and after flattening they are contiguous.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the modules in order, with ReLU moved back."""
        parts = list(self)
        for i, part in enumerate(parts[1:]):
            if type(parts[i]) is nn.ReLU and commutes_with_relu(part):
                parts[i : i + 2] = part, parts[i]
        for part in parts:
            input = part(input)
        return input


def commutes_with_relu(part: nn.Module) -> bool:
    """Whether the module is plain max pooling or only moves elements."""
    return type(part) is nn.Flatten or (type(part) is nn.MaxPool2d and not part.return_indices)


class SmallMapConv2d(nn.Conv2d):
    """An nn.Conv2d that becomes a matrix product on small feature maps: the same results in a fraction of the time.

    On a feature map of one pixel, only the centre of a 3x3 kernel with padding 1 meets the pixel; the other eight
    weights multiply padding. A convolution routine still processes them all, forward and backward. If the kernel covers
    the whole map at every position, each output pixel is a sum over all input pixels, so the convolution is one dense
    matrix product with the weights that meet a pixel. ResNets end in small maps when the images are small.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if input.dim() == 4:
            rows = placement(input.shape[2], self.kernel_size[0], self.stride[0], int(self.padding[0]))
            columns = placement(input.shape[3], self.kernel_size[1], self.stride[1], int(self.padding[1]))
            if rows and columns:
                return dense(input, weight, bias, rows, columns)
        out: Tensor = super()._conv_forward(input, weight, bias)
        return out


def is_plain(part: nn.Conv2d) -> bool:
    """Whether it is a convolution without groups, without dilation, and with explicit zero padding."""
    zeros = part.padding_mode == "zeros" and not isinstance(part.padding, str)
    return zeros and part.groups == 1 and part.dilation == (1, 1)


def placement(size: int, kernel: int, stride: int, padding: int) -> list[list[int]] | None:
    """Along one axis, the kernel index that meets input pixel a for output pixel i, as [i][a]; None unless all do.

    Pixels at the end that no output uses are left out.
    """
    outputs = (size + 2 * padding - kernel) // stride + 1
    reached = min(size, (outputs - 1) * stride - padding + kernel)
    taps = [[a + padding - i * stride for a in range(reached)] for i in range(outputs)]
    return taps if taps and all(0 <= tap < kernel for row in taps for tap in row) else None


def dense(x: Tensor, weight: Tensor, bias: Tensor | None, rows: list[list[int]], columns: list[list[int]]) -> Tensor:
    """The convolution as one matrix product: pixels (B, H*W*C) times the weights that meet them."""
    height, width = len(rows[0]), len(columns[0])
    top, left = min(map(min, rows)), min(map(min, columns))
    bottom, right = max(map(max, rows)) + 1, max(map(max, columns)) + 1
    kernel = weight.shape[2:]
    used = F.pad(weight, (-left, right - kernel[1], -top, bottom - kernel[0]))  # a slice, with a single backward pass
    used = used.permute(2, 3, 0, 1).contiguous()  # by tap, then (out, in)
    taps = [row.unbind() for row in used.unbind()]
    matrix = torch.cat(
        [
            torch.cat([taps[down - top][across - left] for down, across in product(row, column)], dim=1)
            for row, column in product(rows, columns)
        ]
    )
    pixels = x[:, :, :height, :width].permute(0, 2, 3, 1).reshape(len(x), -1)
    out = F.linear(pixels, matrix).view(len(x), len(rows), len(columns), -1)
    return (out if bias is None else out + bias).permute(0, 3, 1, 2)
