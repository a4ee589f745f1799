"""Foreign pickles that hold arrays and plain values, read without trust in whoever wrote them.

A pickle may name any importable callable and have it called. This reader knows three names, those that
NumPy's arrays need, and refuses every other; it never imports by name.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

# The strings of Python 2 stay bytes: which characters they mean is not ours to guess.
ENCODING = "bytes"


def load_arrays(content: bytes) -> Any:
    """What the pickle holds. Raises pickle.UnpicklingError for any name but those of arrays."""
    return _ArrayUnpickler(io.BytesIO(content), encoding=ENCODING).load()


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only arrays are read") from None


def _dtype(kind: Any, align: Any = False, copy: Any = False) -> Any:
    # Files of Python 2 carry 0 and 1 here, at which NumPy 2.4 warns.
    return np.dtype(kind, align=bool(align), copy=bool(copy))


# NumPy's own function to make an empty array for unpickling, taken from an array: its module was renamed
# between NumPy 1 and 2, and the old name warns.
_reconstruct: Callable[..., Any] = np.zeros(0).__reduce__()[0]  # type: ignore[assignment]

ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
}
