"""Tiny ImageNet (Stanford CS231n): 64x64 images of 200 classes, from its official folders.

    wnids.txt                           one class a line
    train/<wnid>/images/*.JPEG
    val/images/*.JPEG, val/val_annotations.txt      (file name, wnid, ... separated by tabs): the test part

The classes are those of wnids.txt, in its order; tiny-imagenet:N is the first N of them, so that results on a part, or
on a folder that is an excerpt, are never taken for those on the whole. The official test folder has no labels and is
not used. Decoding 110,000 files takes a minute: it is done once and cached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedmim.data.cache import cached
from fedmim.data.dataset import Dataset
from fedmim.data.decoding import decode
from fedmim.data.locate import fetch_anew, require_files
from fedmim.data.transforms import CropFlip, Normalise
from fedmim.errors import UserError

NAME = "tiny-imagenet"
FOLDER = "tiny-imagenet-200"
CLASSES = 200
NORMALISE = Normalise((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))

Labelled = list[tuple[Path, int]]


def find_tiny_imagenet(directory: Path, classes: int = CLASSES) -> Path:
    """The folder in `directory` that has both parts and so many classes."""
    files = ["wnids.txt", "train", "val/images", "val/val_annotations.txt"]
    folder = require_files(NAME, directory / FOLDER, files)
    listed = len(_wnids(folder))
    if not listed:
        raise _incomplete(folder, "wnids.txt lists no classes")
    if listed < classes:
        raise UserError(f"{NAME}: {folder} has {listed} of {classes} classes; --data {NAME}:{listed} takes these alone")
    return folder


def load_tiny_imagenet(directory: Path, classes: int = CLASSES) -> Dataset:
    """Tiny ImageNet, or the first so many of its classes, as uint8 images (n, 3, 64, 64)."""
    folder = find_tiny_imagenet(directory, classes)
    wnids = _wnids(folder)[:classes]
    train, test = _training_files(folder, wnids), _test_files(folder, wnids)
    tensors = cached(
        folder / cache_name(classes),
        _fingerprint(folder, train + test),
        lambda: {"train": _decode(train, "training images"), "test": _decode(test, "test images")},
    )
    return Dataset(
        NAME,
        train=(tensors["train"], _labels(train)),
        test=(tensors["test"], _labels(test)),
        classes=classes,
        prepare=NORMALISE,
        augment=CropFlip(padding=4),
    )


def cache_name(classes: int) -> str:
    """The file that keeps the decoded images of so many classes."""
    return f"fedmim-cache-{classes}.safetensors"


def _wnids(folder: Path) -> list[str]:
    return _text(folder / "wnids.txt").split()


def _training_files(folder: Path, wnids: Sequence[str]) -> Labelled:
    files: Labelled = []
    for label, wnid in enumerate(wnids):
        found = sorted((folder / "train" / wnid / "images").glob("*.JPEG"))
        if not found:
            raise _incomplete(folder, f"train/{wnid}/images has no .JPEG files, and wnids.txt lists {wnid}")
        files += [(file, label) for file in found]
    return files


def _test_files(folder: Path, wnids: Sequence[str]) -> Labelled:
    number = {wnid: label for label, wnid in enumerate(wnids)}
    lines = [line.split("\t") for line in _text(folder / "val" / "val_annotations.txt").splitlines()]
    images = folder / "val" / "images"
    # There may be annotations of more classes than are asked for.
    files = [(images / line[0], number[line[1]]) for line in lines if len(line) > 1 and line[1] in number]
    if not files:
        raise _incomplete(folder, "val/val_annotations.txt names no image of the classes in wnids.txt")
    return files


def _text(path: Path) -> str:
    # Names are plain ASCII: anything else is damage, and is reported as a name that does not exist.
    return path.read_text(encoding="ascii", errors="replace")


def _decode(files: Labelled, what: str) -> Tensor:
    images = decode([file for file, _ in files], f"{NAME}, {what}")
    if images.shape[1:] != (3, 64, 64):
        raise UserError(f"{files[0][0]} is not 64x64, as the images of Tiny ImageNet are; use folder:PATH for others")
    return images


def _labels(files: Labelled) -> Tensor:
    return torch.tensor([label for _, label in files])


def _fingerprint(folder: Path, files: Labelled) -> str:
    """Changes with any file's name, label, size or time of change, and costs no reading."""
    digest = hashlib.sha256()
    for file, label in files:
        try:
            status = file.stat()
        except FileNotFoundError:
            raise _incomplete(folder, f"{file.relative_to(folder)} is missing") from None
        digest.update(f"{file.relative_to(folder)} {label} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _incomplete(folder: Path, why: str) -> UserError:
    return UserError(f"{folder} is incomplete: {why}; {fetch_anew(NAME, folder)}")
