"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) from the official Python files, in torchvision's layout.

The files are pickles, and a pickle can call any importable function. Each file is read only if its MD5 matches the
published one, with an unpickler that allows only arrays.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmim.data.descriptor import IMAGE_DEFAULTS, Dataset, DatasetDescriptor, Download
from fedmim.data.lazy_arrays import Tensor, np, torch
from fedmim.data.transforms import CropFlip, Normalise


@dataclass(frozen=True, kw_only=True)
class Cifar(DatasetDescriptor):
    """One of the two data sets: its files with their MD5, and their content."""

    train_files: Mapping[str, str]
    test_files: Mapping[str, str]
    label_key: bytes
    normalise: Normalise

    def find(self, directory: Path) -> Path:
        """The folder in `directory` that has all files."""
        return self.require_files(directory / self.folder, [*self.train_files, *self.test_files])

    def load(self, directory: Path) -> Dataset:
        """The images as uint8 (n, 3, 32, 32)."""
        folder = self.find(directory)
        return Dataset(
            self.name,
            train=self._part(folder, self.train_files),
            test=self._part(folder, self.test_files),
            classes=self.classes,
            prepare=self.normalise,
            augment=CropFlip(padding=4),
        )

    def _part(self, folder: Path, files: Mapping[str, str]) -> tuple[Tensor, Tensor]:
        batches = [self._read_batch(folder / file, md5) for file, md5 in files.items()]
        return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])

    def _read_batch(self, path: Path, md5: str) -> tuple[Tensor, Tensor]:
        content = path.read_bytes()
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != md5:
            raise self.damaged(path, f"its MD5 is {found}, not {md5}")
        try:
            batch = load_arrays(content)
        # A damaged pickle can raise nearly anything.
        except Exception as error:
            raise self.damaged(path, f"it cannot be read ({error})") from error
        return self._images(path, batch)

    def _images(self, path: Path, batch: Any) -> tuple[Tensor, Tensor]:
        try:
            pixels, labels = batch[b"data"], np.asarray(batch[self.label_key])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise self.damaged(path, f"it has no data or no {self.label_key.decode()}") from error
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
            raise self.damaged(path, "its labels are not a list of numbers")
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3072):
            raise self.damaged(path, "its data is not one row of 3,072 bytes per label")
        if labels.min() < 0 or labels.max() >= self.classes:
            raise self.damaged(path, f"its labels are not numbers from 0 to {self.classes - 1}")
        return torch.from_numpy(pixels).view(-1, 3, 32, 32), torch.from_numpy(labels.astype(np.int64))


def load_arrays(content: bytes) -> Any:
    """Load a pickle of arrays and plain values. Raises pickle.UnpicklingError for any other name."""
    # Python 2 strings stay bytes: a pickle does not store their encoding.
    return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()


class _ArrayUnpickler(pickle.Unpickler):
    """Allows the three names that NumPy arrays need, rejects all others, and never imports by name."""

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "numpy", "dtype":
                # Python 2 files have 0 and 1 for align and copy, and NumPy 2.4 warns about them.
                return lambda kind, align=False, copy=False: np.dtype(kind, align=bool(align), copy=bool(copy))
            case "numpy", "ndarray":
                return np.ndarray
            case "numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct":
                # Taken from an array, because the module was renamed in NumPy 2 and the old name warns.
                return np.zeros(0).__reduce__()[0]
        raise pickle.UnpicklingError(f"it contains {module}.{name}, but only arrays are allowed")


_SITE = "https://www.cs.toronto.edu/~kriz"  # also publishes the MD5 sums
CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    description="colour 32x32 photographs (Krizhevsky, 2009)",
    train_size=50_000,
    test_size=10_000,
    classes=10,
    folder="cifar-10-batches-py",
    downloads=(Download(f"{_SITE}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
    inside="cifar-10-batches-py",
    defaults=IMAGE_DEFAULTS,
    target=0.5,
    train_files={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test_files={"test_batch": "40351d587109b95175f43aff81a1287e"},
    label_key=b"labels",
    normalise=Normalise((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
)
CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    description="colour 32x32 photographs, fine labels (Krizhevsky, 2009)",
    train_size=50_000,
    test_size=10_000,
    classes=100,
    folder="cifar-100-python",
    downloads=(Download(f"{_SITE}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
    inside="cifar-100-python",
    defaults=IMAGE_DEFAULTS,
    target=0.2,
    train_files={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test_files={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    label_key=b"fine_labels",
    normalise=Normalise((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
)
