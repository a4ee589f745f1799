"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) from the official python files, as torchvision lays them out.

The files are pickles. Their MD5 is checked against the published one before a byte is unpickled, and then
they are read by an unpickler that admits nothing but arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmim.data.array_pickle import load_arrays
from fedmim.data.dataset import Dataset
from fedmim.data.locate import fetch_anew, require_files
from fedmim.data.transforms import CropFlip, Normalise
from fedmim.errors import UserError


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets: its files with their MD5, and what they hold."""

    name: str
    folder: str
    train: Mapping[str, str]
    test: Mapping[str, str]
    label_key: bytes
    classes: int
    normalise: Normalise


CIFAR10 = Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
    label_key=b"labels",
    classes=10,
    normalise=Normalise((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
)
CIFAR100 = Cifar(
    name="cifar100",
    folder="cifar-100-python",
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    label_key=b"fine_labels",
    classes=100,
    normalise=Normalise((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
)


def find_cifar(cifar: Cifar, directory: Path) -> Path:
    """The folder in `directory` that has all the files."""
    return require_files(cifar.name, directory / cifar.folder, [*cifar.train, *cifar.test])


def load_cifar(cifar: Cifar, directory: Path) -> Dataset:
    """The data set as uint8 images (n, 3, 32, 32)."""
    folder = find_cifar(cifar, directory)
    return Dataset(
        cifar.name,
        train=_part(cifar, folder, cifar.train),
        test=_part(cifar, folder, cifar.test),
        classes=cifar.classes,
        prepare=cifar.normalise,
        augment=CropFlip(padding=4),
    )


def _part(cifar: Cifar, folder: Path, files: Mapping[str, str]) -> tuple[Tensor, Tensor]:
    batches = [_read_batch(cifar, folder / file, md5) for file, md5 in files.items()]
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def _read_batch(cifar: Cifar, path: Path, md5: str) -> tuple[Tensor, Tensor]:
    content = path.read_bytes()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise _damaged(cifar, path, f"its MD5 is {found}, not {md5}")
    try:
        batch = load_arrays(content)
    # A damaged pickle can raise nearly anything.
    except Exception as error:
        raise _damaged(cifar, path, f"it cannot be read ({error})") from error
    return _images(cifar, path, batch)


def _images(cifar: Cifar, path: Path, batch: Any) -> tuple[Tensor, Tensor]:
    try:
        pixels, labels = batch[b"data"], np.asarray(batch[cifar.label_key])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _damaged(cifar, path, f"it lacks its data or {cifar.label_key.decode()}") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise _damaged(cifar, path, "its labels are not a list of numbers")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3072):
        raise _damaged(cifar, path, "its data are not one row of 3,072 bytes for each label")
    if labels.min() < 0 or labels.max() >= cifar.classes:
        raise _damaged(cifar, path, f"its labels are not numbers from 0 to {cifar.classes - 1}")
    return torch.from_numpy(pixels).view(-1, 3, 32, 32), torch.from_numpy(labels.astype(np.int64))


def _damaged(cifar: Cifar, path: Path, why: str) -> UserError:
    return UserError(f"{path} is damaged: {why}; {fetch_anew(cifar.name, path.parent)}")
