"""Any folder of images, one sub-folder a class: `folder:PATH`.

    PATH/train/<class>/..., PATH/test/<class>/...  (or val)      the test part is given
    PATH/<class>/...                                             a fixed fifth of each class is the test part

Classes are numbered in the order of their names. Images become RGB; the constants of the normalisation are
those of the training part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedmim.data.dataset import Dataset
from fedmim.data.decoding import decode
from fedmim.data.holdout import holdout
from fedmim.data.transforms import CropFlip, Normalise
from fedmim.errors import UserError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})

Labelled = list[tuple[Path, int]]


def load_image_folder(path: Path, image_size: int | None = None) -> Dataset:
    """The folder as uint8 images (n, 3, H, W), all resized to squares of `image_size` where it is given."""
    if image_size is not None and image_size < 1:
        raise UserError(f"image_size must be at least 1, not {image_size}")
    if not path.is_dir():
        raise UserError(f"folder:{path}: there is no such folder")
    train, test, classes = _given_parts(path) if (path / "train").is_dir() else _own_parts(path)
    # In one go, so that images of both parts share one size.
    images = decode([file for file, _ in train + test], path.name, image_size)
    labels = torch.tensor([label for _, label in train + test])
    cut = len(train)
    return Dataset(
        f"folder:{path}",
        train=(images[:cut], labels[:cut]),
        test=(images[cut:], labels[cut:]),
        classes=classes,
        prepare=Normalise.of(images[:cut]),
        augment=CropFlip(padding=4),
    )


def _given_parts(path: Path) -> tuple[Labelled, Labelled, int]:
    test = next((path / name for name in ("test", "val") if (path / name).is_dir()), None)
    if test is None:
        raise UserError(f"{path} has a folder train but neither test nor val: add one, or move the classes up")
    classes = _classes(path / "train")
    unseen = [name for name in _classes(test) if name not in classes]
    if unseen:
        raise UserError(f"{test / unseen[0]}: there is no such class in {path / 'train'}")
    return _files(path / "train", classes), _files(test, _classes(test), classes), len(classes)


def _own_parts(path: Path) -> tuple[Labelled, Labelled, int]:
    classes = _classes(path)
    files = _files(path, classes)
    train, test = holdout(np.array([label for _, label in files]), share=0.2)
    if not len(test):
        raise UserError(f"{path} has too few images for a test part: give one as {path / 'test'}")
    return [files[index] for index in train], [files[index] for index in test], len(classes)


def _classes(folder: Path) -> list[str]:
    names = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not names:
        raise UserError(f"{folder} has no sub-folders: each class needs one with its images")
    return names


def _files(folder: Path, present: Sequence[str], classes: Sequence[str] | None = None) -> Labelled:
    """The images of the classes that are present, numbered as in `classes` (those present unless given)."""
    files: Labelled = []
    for name in present:
        found = sorted(file for file in (folder / name).rglob("*") if file.suffix.lower() in SUFFIXES)
        if not found:
            raise UserError(f"{folder / name} has no images: remove the folder or fill it")
        label = (classes or present).index(name)
        files += [(file, label) for file in found]
    return files
