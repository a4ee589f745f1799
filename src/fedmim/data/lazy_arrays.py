"""NumPy and PyTorch, imported at first use, so that the command line can look up data sets quickly."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["Booleans", "Floats", "Integers", "Tensor", "np", "torch"]

Booleans: TypeAlias = "np.typing.NDArray[np.bool_]"
Floats: TypeAlias = "np.typing.NDArray[np.float64]"
Integers: TypeAlias = "np.typing.NDArray[np.int64]"
Tensor: TypeAlias = "torch.Tensor"

if TYPE_CHECKING:
    import numpy as np
    import torch
else:

    class _LazyModule:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    np, torch = _LazyModule("numpy"), _LazyModule("torch")
