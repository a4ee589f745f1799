"""Colour shift: each client has its own brightness and saturation, as if it had its own camera.

    image' = b * (grey + s * (image - grey)),    b, s ~ U[1 - strength, 1 + strength] for each client

with brightness b, saturation s, and grey the luminance of the pixel. Values are clamped to [0, 255] once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedmim.data.keyed_generator import keyed_generator
from fedmim.data.lazy_arrays import Tensor, torch
from fedmim.errors import UserError

LUMINANCE = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in Pillow and torchvision


@dataclass(frozen=True)
class ColourShift:
    """Brightness and saturation of each client; they depend only on (seed, client)."""

    strength: float
    """Both factors are drawn from [1 - strength, 1 + strength]."""
    seed: int = 0
    """The seed of the draw."""

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise UserError(f"colour: the strength must be between 0 and 1, got {self.strength}")

    def factors(self, client: int) -> tuple[float, float]:
        """Brightness and saturation of one client."""
        low, high = 1 - self.strength, 1 + self.strength
        brightness, saturation = keyed_generator("colour", self.seed, client).uniform(low, high, size=2)
        return float(brightness), float(saturation)

    def check(self, images: Tensor) -> None:
        """Raise UserError if these are not uint8 images (n, 1 or 3, H, W)."""
        if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3):
            raise UserError(
                "colour: needs uint8 images of 1 or 3 channels, but the data is "
                f"{images.dtype} of shape {tuple(images.shape)}: remove the colour shift"
            )

    def __call__(self, images: Tensor, client: int) -> Tensor:
        """The images (n, C, H, W) of this client. Grey images change only in brightness."""
        if self.strength == 0:
            return images
        brightness, saturation = self.factors(client)
        shifted = images * brightness
        if images.shape[1] == 3:
            weights = torch.tensor(LUMINANCE, device=images.device)[:, None, None]
            grey = (shifted * weights).sum(1, keepdim=True)  # (n, 1, H, W)
            shifted = torch.lerp(grey, shifted, saturation)
        return shifted.round_().clamp_(0, 255).to(torch.uint8)
