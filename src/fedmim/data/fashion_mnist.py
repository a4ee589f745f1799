"""Fashion-MNIST (Xiao et al., 2017) from its IDX files, raw or gzipped, in its own folder or torchvision's.

IDX: a magic number 0x0000TTDD (type, 8 for uint8; number of dimensions), the dimensions as big-endian 32-bit
numbers, then the values.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedmim.data.dataset import Dataset
from fedmim.data.locate import fetch_anew, not_found, require_files
from fedmim.data.transforms import Normalise
from fedmim.errors import UserError

NAME = "fashion-mnist"
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
UNSIGNED_BYTE = 8


def find_fashion_mnist(directory: Path) -> Path:
    """The folder in `directory` that has the four files."""
    folders = [directory / NAME, directory / "FashionMNIST" / "raw"]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise not_found(NAME, folders[0])
    return require_files(NAME, folder, [_stored(folder, file).name for file in FILES])


def load_fashion_mnist(directory: Path) -> Dataset:
    """Fashion-MNIST as uint8 images (n, 1, 28, 28)."""
    folder = find_fashion_mnist(directory)
    train_x, train_y, test_x, test_y = (_stored(folder, file) for file in FILES)
    return Dataset(
        NAME,
        train=_pair(train_x, train_y),
        test=_pair(test_x, test_y),
        classes=10,
        prepare=Normalise((0.2860,), (0.3530,)),
    )


def _stored(folder: Path, file: str) -> Path:
    """The file as it lies there: raw if so, else gzipped."""
    raw = folder / file
    return raw if raw.exists() else folder / f"{file}.gz"


def _pair(images: Path, labels: Path) -> tuple[Tensor, Tensor]:
    x, y = _read_idx(images, dimensions=3), _read_idx(labels, dimensions=1)
    if x.shape[1:] != (28, 28):
        raise _damaged(images, f"its images are {x.shape[1]}x{x.shape[2]}, not 28x28")
    if len(x) != len(y):
        raise _damaged(images, f"it has {len(x)} images, and {labels.name} has {len(y)} labels")
    if len(y) == 0 or y.max() > 9:
        raise _damaged(labels, "its labels are not the digits 0 to 9")
    return torch.from_numpy(x)[:, None], torch.from_numpy(y.astype(np.int64))


def _read_idx(path: Path, dimensions: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, f"it cannot be decompressed ({error})") from error
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, UNSIGNED_BYTE, dimensions]):
        raise _damaged(path, f"it does not begin like an IDX file of {dimensions} dimensions")
    shape = np.frombuffer(content[4:header], dtype=">u4").astype(np.int64)
    expected = header + int(np.prod([int(length) for length in shape], dtype=object))
    if len(content) != expected:
        raise _damaged(path, f"it has {len(content)} bytes where its header announces {expected}")
    # A copy, because torch wants memory that it may write to.
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path} is damaged: {why}; {fetch_anew(NAME, path.parent)}")
