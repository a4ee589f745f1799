"""Randomness by key: a generator that depends on its key alone, so nothing drawn elsewhere moves it."""

from __future__ import annotations

import hashlib

import numpy as np


def generator(*key: str | int) -> np.random.Generator:
    """A generator seeded by a hash of `key`; any integers serve, negative ones too."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))
