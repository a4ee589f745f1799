"""Keyed randomness: a generator that depends on its key alone, never on what was drawn elsewhere."""

from __future__ import annotations

import hashlib

from fedmim.data.lazy_arrays import np


def keyed_generator(*key: str | int) -> np.random.Generator:
    """A generator seeded by a hash of `key`, which may hold any integers, also negative ones."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))
