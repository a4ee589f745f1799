"""Fashion-MNIST (Xiao et al., 2017) from its IDX files, raw or gzipped, in its own or torchvision's folder.

IDX: a magic number 0x0000TTDD (type, 8 for uint8; number of dimensions), the dimensions as big-endian 32-bit numbers,
then the values.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

from fedmim.data.descriptor import IMAGE_DEFAULTS, Dataset, DatasetDescriptor, Download
from fedmim.data.lazy_arrays import Tensor, np, torch
from fedmim.data.transforms import Normalise

IDX_FILES = {  # MD5 of the gzipped file, from the README of the data set
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
UNSIGNED_BYTE = 8
LARGEST_IDX = 100_000_000  # values; the largest of the four files has 47,040,000


class FashionMnist(DatasetDescriptor):
    """The four IDX files."""

    def find(self, directory: Path) -> Path:
        """The folder in `directory` that has the four files."""
        own, torchvision = directory / self.folder, directory / "FashionMNIST" / "raw"
        folder = torchvision if torchvision.is_dir() and not own.is_dir() else own
        return self.require_files(folder, [_stored(folder, file).name for file in IDX_FILES])

    def load(self, directory: Path) -> Dataset:
        """The images as uint8 (n, 1, 28, 28)."""
        folder = self.find(directory)
        train_x, train_y, test_x, test_y = (_stored(folder, file) for file in IDX_FILES)
        return Dataset(
            self.name,
            train=self._pair(train_x, train_y),
            test=self._pair(test_x, test_y),
            classes=self.classes,
            prepare=Normalise((0.2860,), (0.3530,)),
        )

    def _pair(self, images: Path, labels: Path) -> tuple[Tensor, Tensor]:
        x, y = self._read_idx(images, dimensions=3), self._read_idx(labels, dimensions=1)
        if x.shape[1:] != (28, 28):
            raise self.damaged(images, f"its images are {x.shape[1]}x{x.shape[2]}, not 28x28")
        if len(x) != len(y):
            raise self.damaged(images, f"it has {len(x)} images, and {labels.name} has {len(y)} labels")
        if len(y) == 0 or y.max() > 9:
            raise self.damaged(labels, "its labels are not the digits 0 to 9")
        return torch.from_numpy(x)[:, None], torch.from_numpy(y).long()

    def _read_idx(self, path: Path, dimensions: int) -> np.typing.NDArray[np.uint8]:
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                shape = self._shape(path, file.read(4 + 4 * dimensions), dimensions)
                size = math.prod(shape)
                content = file.read(size + 1)  # reading to the end of a gzipped file verifies its checksum
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self.damaged(path, f"it cannot be decompressed ({error})") from error
        if len(content) != size:
            has = f"{len(content)}" if len(content) < size else f"more than {size}"
            raise self.damaged(path, f"it has {has} bytes, but its header says {size}")
        # A copy, because torch needs writable memory.
        return np.frombuffer(content, dtype=np.uint8).reshape(shape).copy()

    def _shape(self, path: Path, header: bytes, dimensions: int) -> list[int]:
        if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, UNSIGNED_BYTE, dimensions]):
            raise self.damaged(path, f"it does not start like an IDX file with {dimensions} dimensions")
        shape: list[int] = np.frombuffer(header[4:], dtype=">u4").tolist()
        if math.prod(shape) > LARGEST_IDX:
            raise self.damaged(path, f"its header says {math.prod(shape):,} values, which is too many")
        return shape


def _stored(folder: Path, file: str) -> Path:
    """The raw file if there is one, else the gzipped one."""
    raw = folder / file
    return raw if raw.exists() else folder / f"{file}.gz"


_SITE = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
FASHION_MNIST = FashionMnist(
    name="fashion-mnist",
    description="grey 28x28 images of clothing (Xiao et al., 2017)",
    train_size=60_000,
    test_size=10_000,
    classes=10,
    folder="fashion-mnist",
    downloads=tuple(Download(f"{_SITE}/{file}.gz", md5) for file, md5 in IDX_FILES.items()),
    defaults={**IMAGE_DEFAULTS, "rounds": 100, "eval_every": 5},
    target=0.75,
)
