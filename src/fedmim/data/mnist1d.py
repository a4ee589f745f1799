"""MNIST-1D (Greydanus and Kobak, 2024): 5,000 signals of length 40 in ten classes, made offline by the package mnist1d.

It is small enough to train a method in seconds and hard enough to tell methods apart. The signals are those of the
package's own `make_dataset` at its default seed, so they are the same everywhere; making them takes about a second, so
they are kept in a cache ($XDG_CACHE_HOME/fedmim, else ~/.cache/fedmim).
"""

from __future__ import annotations

import os
import random
from importlib.metadata import version
from pathlib import Path

from fedmim.data.cache import Tensors, cached_tensors
from fedmim.data.descriptor import Dataset, DatasetDescriptor
from fedmim.data.lazy_arrays import np, torch


class Mnist1d(DatasetDescriptor):
    """The signals that the package makes."""

    def load(self, directory: Path) -> Dataset:
        """The signals as float32 (n, 40), centred and of unit variance."""
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        tensors = cached_tensors(Path(home).expanduser() / "fedmim" / "mnist1d.safetensors", _fingerprint(), _signals)
        train, test = ((tensors[f"x_{part}"], tensors[f"y_{part}"]) for part in ("train", "test"))
        return Dataset(self.name, train=train, test=test, classes=self.classes)


def _fingerprint() -> str:
    """Of all that the signals come from."""
    return " ".join(f"{package} {version(package)}" for package in ("mnist1d", "numpy", "scipy"))


def _signals() -> Tensors:
    from mnist1d.data import make_dataset

    states = random.getstate(), np.random.get_state()  # the package seeds both
    try:
        made = make_dataset()
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    return {
        "x_train": torch.from_numpy(made["x"].astype(np.float32)),
        "y_train": torch.from_numpy(made["y"].astype(np.int64)),
        "x_test": torch.from_numpy(made["x_test"].astype(np.float32)),
        "y_test": torch.from_numpy(made["y_test"].astype(np.int64)),
    }


MNIST1D = Mnist1d(
    name="mnist1d",
    title="MNIST-1D",
    description="signals of length 40 in ten classes, made on this machine: no download (Greydanus and Kobak, 2024)",
    train_size=4000,
    test_size=1000,
    classes=10,
    defaults={"model": "mlp2", "rounds": 150, "batch_size": 10, "lr_decay": 1.0},
    target=0.5,
)
