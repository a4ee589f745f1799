"""Reads pickles that hold arrays and plain values, without trusting them.

A pickle can name any importable function and have it called. This reader allows the three names that NumPy's arrays
need, rejects every other, and never imports by name.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np


def load_arrays(content: bytes) -> Any:
    """What the pickle holds. Raises pickle.UnpicklingError for any name but those of arrays."""
    # Strings of Python 2 stay bytes: a pickle does not say which characters they stand for.
    return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only arrays are read") from None


def _dtype(kind: Any, align: Any = False, copy: Any = False) -> Any:
    # Files of Python 2 carry 0 and 1 here, at which NumPy 2.4 warns.
    return np.dtype(kind, align=bool(align), copy=bool(copy))


# NumPy's function that makes an empty array for unpickling, taken from an array: its module was renamed between NumPy 1
# and 2, and the old name warns.
_reconstruct: Callable[..., Any] = np.zeros(0).__reduce__()[0]  # type: ignore[assignment]

_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
}
