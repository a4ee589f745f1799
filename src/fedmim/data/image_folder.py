"""Any folder of images, one sub-folder per class: `folder:PATH`.

    PATH/train/<class>/..., PATH/test/<class>/...  (or val)      with a test part
    PATH/<class>/...                                             a fixed fifth of each class is the test part

Classes are numbered in the order of their names. Images are converted to RGB and normalised with the mean and standard
deviation of the training part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from fedmim.data.decoding import LabelledFiles, decode_images, labels_of
from fedmim.data.descriptor import IMAGE_DEFAULTS, Dataset, OwnData
from fedmim.data.holdout import stratified_holdout
from fedmim.data.lazy_arrays import np
from fedmim.data.transforms import CropFlip, Normalise
from fedmim.errors import UserError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True, kw_only=True)
class ImageFolder(OwnData):
    """The images in `path`, resized to squares if `image_size` is set."""

    image_size: int | None = None

    def resized(self, image_size: int) -> Self:
        """The same images as squares of this size."""
        if image_size < 1:
            raise UserError(f"image_size: must be at least 1, got {image_size}")
        return replace(self, image_size=image_size)

    def load(self, directory: Path) -> Dataset:
        """The images as uint8 (n, 3, H, W)."""
        if not self.path.is_dir():
            raise UserError(f"{self.name}: there is no such folder")
        given = (self.path / "train").is_dir()
        train, test = _given_parts(self.path) if given else _own_parts(self.path)
        # Both parts together, to check that all images have the same size.
        images, labels = decode_images(train + test, self.path.name, self.image_size), labels_of(train + test)
        cut = len(train)
        return Dataset(
            self.name,
            train=(images[:cut], labels[:cut]),
            test=(images[cut:], labels[cut:]),
            classes=int(labels.max()) + 1,
            prepare=Normalise.of(images[:cut]),
            augment=CropFlip(padding=4),
        )


def _given_parts(path: Path) -> tuple[LabelledFiles, LabelledFiles]:
    test = next((path / name for name in ("test", "val") if (path / name).is_dir()), None)
    if test is None:
        raise UserError(
            f"{path} has a folder train but neither test nor val: add one, or move the classes out of train"
        )
    classes = _classes(path / "train")
    unseen = [name for name in _classes(test) if name not in classes]
    if unseen:
        raise UserError(f"{test / unseen[0]}: {path / 'train'} has no such class")
    return _files(path / "train", classes), _files(test, classes)


def _own_parts(path: Path) -> tuple[LabelledFiles, LabelledFiles]:
    files = _files(path, _classes(path))
    train, test = stratified_holdout(np.array([label for _, label in files]), share=0.2)
    if not len(test):
        raise UserError(f"{path} has too few images to hold out a test part: add {path / 'test'}")
    return [files[index] for index in train], [files[index] for index in test]


def _classes(folder: Path) -> list[str]:
    names = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not names:
        raise UserError(f"{folder} has no sub-folders: put the images of each class in one")
    return names


def _files(folder: Path, classes: Sequence[str]) -> LabelledFiles:
    """The images of the classes that the folder has, numbered as in `classes`."""
    files: LabelledFiles = []
    for name in _classes(folder):
        found = sorted(file for file in (folder / name).rglob("*") if file.suffix.lower() in SUFFIXES)
        if not found:
            raise UserError(f"{folder / name} has no images: remove it or add images")
        files += [(file, classes.index(name)) for file in found]
    return files


IMAGE_FOLDER = ImageFolder(
    name="folder:PATH", description="your own images, one sub-folder per class", defaults=IMAGE_DEFAULTS
)
