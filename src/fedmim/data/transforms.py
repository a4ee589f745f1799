"""Transforms of a batch of uint8 images or tokens before it goes to the model, as tensor code.

Normalise:  (pixel / 255 - mean) / std,  folded into  pixel * scale + shift.
CropFlip:   pad with black, crop a random window of the old size, flip it horizontally with probability 1/2.
as_indices: tokens to int64.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedmim.data.lazy_arrays import Tensor, torch


@dataclass(frozen=True)
class Normalise:
    """uint8 images (B, C, H, W) to float32, (pixel / 255 - mean) / std per channel."""

    mean: tuple[float, ...]
    """One value per channel, of pixels from 0 to 1."""
    std: tuple[float, ...]
    """One value per channel, of pixels from 0 to 1."""

    def __call__(self, images: Tensor) -> Tensor:
        """The normalised images."""
        # (C, 1, 1) each. One pass converts and scales, one in-place pass shifts.
        scale = torch.tensor([1 / (255 * std) for std in self.std], device=images.device)[:, None, None]
        shift = torch.tensor(
            [-mean / std for mean, std in zip(self.mean, self.std, strict=True)], device=images.device
        )[:, None, None]
        return torch.mul(images, scale).add_(shift)

    @classmethod
    def of(cls, images: Tensor) -> Normalise:
        """Mean and std of these uint8 images (n, C, H, W), from the histogram of each channel."""
        levels = torch.arange(256, dtype=torch.float64) / 255
        mean, std = [], []
        for channel in range(images.shape[1]):
            share = torch.bincount(images[:, channel].flatten(), minlength=256).double()
            share /= share.sum()
            centre = float(share @ levels)
            mean.append(centre)
            # A constant channel: shift it to 0 and keep its scale.
            std.append(float(share @ (levels - centre) ** 2) ** 0.5 or 1.0)
        return cls(tuple(mean), tuple(std))


@dataclass(frozen=True)
class CropFlip:
    """Random crop of the padded image and random horizontal flip, drawn for each image."""

    padding: int = 4
    """The number of black pixels at each side before the crop."""

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Top and left edge of each window (2, count), and whether it is flipped (count,), 0 or 1."""
        corners = torch.randint(0, 2 * self.padding + 1, (2, count), generator=generator)
        return corners, torch.randint(0, 2, (count,), generator=generator)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """New images of the same shape (B, C, H, W), on the same device; the generator is a CPU generator."""
        count, channels, height, width = images.shape
        corners, mirrored = self.draw(count, generator)
        pad = self.padding
        tall, wide = height + 2 * pad, width + 2 * pad
        padded = images.new_zeros(2, count, channels, tall, wide)
        padded[0, :, :, pad : pad + height, pad : pad + width] = images
        # The window is flipped after the crop, so in the flipped image its left edge is on the other side.
        padded[1, :, :, pad : pad + height, pad : pad + width] = images.flip(3)
        top, left = corners
        left = torch.where(mirrored == 1, 2 * pad - left, left)
        # (B,): where each window begins in `padded`.
        start = (mirrored * count + torch.arange(count)) * (channels * tall * wide) + top * wide + left
        # A window spans `span` pixels of memory from its first to its last pixel. Copy this row for each image and
        # skip the pixels in between with a view: several times as fast as gathering single pixels.
        span = ((channels - 1) * tall + height - 1) * wide + width
        anywhere = padded.as_strided((padded.numel() - span + 1, span), (1, 1))
        windows = anywhere.index_select(0, start.to(images.device))  # (B, span)
        return windows.as_strided(images.shape, (span, tall * wide, wide, 1))


def as_indices(tokens: Tensor) -> Tensor:
    """Tokens of any integer type as int64, which embeddings need."""
    return tokens.long()
