"""A data set as tensors that stay in memory: what every loader of this room returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dataset:
    """Training and test part, and what has to happen to a batch before a model sees it."""

    name: str
    train: tuple[Tensor, Tensor]
    """x: uint8 images (n, C, H, W) or float features (n, ...); y: int64 (n,)."""
    test: tuple[Tensor, Tensor]
    classes: int
    natural: tuple[Tensor, ...] | None = None
    """Where the data has clients of its own: int64 indices into `train`, one tensor a client."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """Applied to every batch, training and test: uint8 to normalised float32. None: x is ready as it is."""
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    """Applied to training batches only, before `prepare`. None where it makes no sense."""
