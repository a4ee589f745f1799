"""Tensors and structures of tensors (tuples, lists and dicts, also nested) in one way.

A single tensor is handled without a walk through its structure, which takes microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_leaves, tree_map, tree_unflatten

Structure: TypeAlias = Any  # a tensor, or a tuple, list or dict of structures


def each(function: Callable[[Tensor], Any], value: Structure) -> Structure:
    """The structure of the results of a function of every tensor."""
    return function(value) if isinstance(value, Tensor) else tree_map(function, value)


def tensors(value: Structure) -> list[Tensor]:
    """All tensors, in order."""
    return [value] if isinstance(value, Tensor) else tree_leaves(value)


def named_tensors(name: str, value: Structure) -> dict[str, Any]:
    """All tensors by name, as in Python: x, x['mask'] or x[0]; other values that are in their place too."""
    return {name + keystr(path): part for path, part in tree_flatten_with_path(value)[0]}


def length(value: Structure) -> int:
    """The number of samples."""
    return int((value if isinstance(value, Tensor) else tensors(value)[0]).shape[0])


def split(value: Structure, sizes: int | list[int]) -> list[Structure]:
    """Parts of these numbers of samples; for one number, all of this size but for the last."""
    if isinstance(value, Tensor):
        return list(value.split(sizes))
    parts, kind = tree_flatten(value)
    return [tree_unflatten(row, kind) for row in zip(*(part.split(sizes) for part in parts), strict=True)]


def join(values: Sequence[Structure]) -> Structure:
    """The samples of all structures, concatenated; one alone is not copied."""
    if len(values) == 1:
        return values[0]
    if isinstance(values[0], Tensor):
        return torch.cat(list(values))
    return tree_map(lambda *parts: torch.cat(parts), *values)
