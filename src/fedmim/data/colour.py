"""Colour shift by client: every client sees the world through its own camera.

    image' = b * (grey + s * (image - grey)),    b, s ~ U[1 - strength, 1 + strength] for each client

with brightness b, saturation s and grey the luminance of the pixel, clamped to [0, 255] once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedmim.data.keyed import generator
from fedmim.errors import UserError

LUMINANCE = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in Pillow and torchvision


@dataclass(frozen=True)
class ColourShift:
    """Brightness and saturation of every client, by (seed, client): the number of clients moves nothing."""

    strength: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise UserError(f"the strength of the colour shift must lie in [0, 1], not {self.strength}")

    def factors(self, client: int) -> tuple[float, float]:
        """Brightness and saturation of one client."""
        low, high = 1 - self.strength, 1 + self.strength
        brightness, saturation = generator("colour", self.seed, client).uniform(low, high, size=2)
        return float(brightness), float(saturation)

    def check(self, images: Tensor) -> None:
        """Refuse what has no colour: anything but uint8 images (n, 1 or 3, H, W)."""
        if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3):
            shape = tuple(images.shape)
            raise UserError(
                "a colour shift needs uint8 images of 1 or 3 channels, and this data is "
                f"{images.dtype} of shape {shape}: leave the colour shift out"
            )

    def __call__(self, images: Tensor, client: int) -> Tensor:
        """The images (n, C, H, W) as this client sees them. Grey images have brightness only."""
        if self.strength == 0:
            return images
        brightness, saturation = self.factors(client)
        shifted = images * brightness
        if images.shape[1] == 3:
            weights = torch.tensor(LUMINANCE, device=images.device)[:, None, None]
            grey = (shifted * weights).sum(1, keepdim=True)  # (n, 1, H, W)
            shifted = torch.lerp(grey, shifted, saturation)
        return shifted.round_().clamp_(0, 255).to(torch.uint8)
