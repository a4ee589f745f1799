"""Keyed randomness: a generator that depends only on its key, not on other draws."""

from __future__ import annotations

import hashlib

from fedmim.data.lazy_arrays import np


def keyed_generator(*key: str | int) -> np.random.Generator:
    """A generator seeded with a hash of `key`. Integers may be negative."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))
