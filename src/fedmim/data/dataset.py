"""A data set as tensors that stay in memory: what `load` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator, Tensor


@dataclass(frozen=True)
class Dataset:
    """The training and the test part, and how a batch is prepared for a model."""

    name: str
    train: tuple[Tensor, Tensor]
    """x: uint8 images (n, C, H, W) or float features (n, ...); y: int64 (n,)."""
    test: tuple[Tensor, Tensor]
    classes: int
    natural: tuple[Tensor, ...] | None = None
    """Where the data has clients of its own: int64 indices into `train`, one tensor per client."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """Applied to every batch, training and test: uint8 to normalised float32. None: x is ready as it is."""
    augment: Callable[[Tensor, Generator], Tensor] | None = None
    """Applied to training batches only, before `prepare`. None where it makes no sense."""
