"""Samples (x, y): what they must be, and on which device they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedmim.errors import UserError
from fedmim.structure import Structure, each, named_tensors, tensors

Samples: TypeAlias = tuple[Structure, Structure]  # x and y


def are_two_tensors(pair: Any) -> bool:
    """Whether this is a tuple of two tensors of the same length: the most frequent case of samples, checked fast."""
    if type(pair) is not tuple or len(pair) != 2:
        return False
    x, y = pair
    return isinstance(x, Tensor) and isinstance(y, Tensor) and x.dim() > 0 < y.dim() and 0 < x.shape[0] == y.shape[0]


def check_samples(where: str, pair: Any) -> None:
    """Reject anything but a pair of tensors, or structures of tensors, that all have the same length."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise UserError(f"{where}: must be a pair (x, y) of tensors, got {_described(pair)}")
    x, y = pair
    parts = named_tensors("x", x) | named_tensors("y", y)
    for name, part in parts.items():
        if not isinstance(part, Tensor):
            remedy = "use dict(...)" if isinstance(part, Mapping) else "use torch.as_tensor"
            raise UserError(f"{where}: {name} must be a tensor, got {type(part).__name__}; {remedy}")
        if not part.dim():
            raise UserError(f"{where}: {name} is a single number; its first dimension must be the samples")
    if not (tensors(x) and tensors(y)):
        raise UserError(f"{where}: {'y' if tensors(x) else 'x'} has no tensors; give at least one")
    (first, size), *others = ((name, len(part)) for name, part in parts.items())
    for other, count in others:
        if count != size:
            raise UserError(f"{where}: {first} has {size} samples and {other} has {count}; give each the same number")
    if not size:
        raise UserError(f"{where}: must have at least one sample")


def _described(pair: Any) -> str:
    """What was given in place of a pair, and the remedy."""
    kind = type(pair).__name__
    if isinstance(pair, tuple | list):
        return f"a {kind} of {len(pair)}; several inputs are one x: ((input, input), y)"
    if hasattr(pair, "__getitem__") and not isinstance(pair, Tensor | Mapping) and not hasattr(pair, "dtype"):
        return f"{kind}; Task.from_datasets reads Datasets and lists of items"
    return f"{kind}; give x and y"


def to_device(samples: Samples, device: torch.device | str) -> Samples:
    """The samples on a device; those already there are not copied."""
    x, y = samples
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return x.to(device), y.to(device)
    x, y = (each(lambda part: part.to(device), either) for either in (x, y))
    return x, y
