"""Tiny ImageNet (Stanford CS231n): 64x64 images of 200 classes, from its official folders.

    wnids.txt                           one class per line
    train/<wnid>/images/*.JPEG
    val/images/*.JPEG, val/val_annotations.txt      (file name, wnid, ... separated by tabs): the test part

Classes are numbered in the order of wnids.txt. tiny-imagenet:N is the first N of them, under its own name, so that its
results are not mistaken for those on all classes. The official test folder has no labels and is not used. Decoding
110,000 files takes a minute, so the result is cached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from fedmim.data.cache import cached_tensors
from fedmim.data.decoding import LabelledFiles, decode_images, labels_of
from fedmim.data.descriptor import IMAGE_DEFAULTS, Dataset, DatasetDescriptor, Download
from fedmim.data.lazy_arrays import Tensor
from fedmim.data.transforms import CropFlip, Normalise
from fedmim.errors import UserError


class TinyImageNet(DatasetDescriptor):
    """Tiny ImageNet with its first `classes` classes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Includes the name of a part."""
        return self.name, f"{self.name}:N"

    def named(self, name: str) -> Self | None:
        """The whole data set, or the part with the first N classes, which has its own title and no target."""
        kind, _, count = name.partition(":")
        if kind != self.name or not count:
            return super().named(name)
        if not (count.isdecimal() and len(count) < 19 and 2 <= int(count) <= self.classes):
            raise UserError(f"data: N in {kind}:N must be a number of classes from 2 to {self.classes}, got {count}")
        title = f"{self.title}, {count} of {self.classes} classes"
        return replace(self, title=title, classes=int(count), target=None)

    def find(self, directory: Path) -> Path:
        """The folder in `directory` that has both parts and enough classes."""
        files = ["wnids.txt", "train", "val/images", "val/val_annotations.txt"]
        folder = self.require_files(directory / self.folder, files)
        listed = len(_wnids(folder))
        if not listed:
            raise self._incomplete(folder, "wnids.txt lists no classes")
        if listed < self.classes:
            raise UserError(
                f"{self.name}: {folder} has {listed} of {self.classes} classes; "
                f"use --data {self.name}:{listed} for these only"
            )
        return folder

    def load(self, directory: Path) -> Dataset:
        """The images as uint8 (n, 3, 64, 64)."""
        folder = self.find(directory)
        wnids = _wnids(folder)[: self.classes]
        train, test = self._training_files(folder, wnids), self._test_files(folder, wnids)
        tensors = cached_tensors(
            folder / cache_name(self.classes),
            self._fingerprint(folder, train + test),
            lambda: {"train": self._decode(train, "training images"), "test": self._decode(test, "test images")},
        )
        return Dataset(
            self.name,
            train=(tensors["train"], labels_of(train)),
            test=(tensors["test"], labels_of(test)),
            classes=self.classes,
            prepare=Normalise((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
            augment=CropFlip(padding=4),
        )

    def _training_files(self, folder: Path, wnids: Sequence[str]) -> LabelledFiles:
        files: LabelledFiles = []
        for label, wnid in enumerate(wnids):
            self._check_name(folder, "wnids.txt", wnid)
            found = sorted((folder / "train" / wnid / "images").glob("*.JPEG"))
            if not found:
                raise self._incomplete(folder, f"train/{wnid}/images has no .JPEG files, but wnids.txt lists {wnid}")
            files += [(file, label) for file in found]
        return files

    def _test_files(self, folder: Path, wnids: Sequence[str]) -> LabelledFiles:
        number = {wnid: label for label, wnid in enumerate(wnids)}
        lines = [line.split("\t") for line in _text(folder / "val" / "val_annotations.txt").splitlines()]
        images = folder / "val" / "images"
        # There may be annotations of further classes.
        named = [(line[0], number[line[1]]) for line in lines if len(line) > 1 and line[1] in number]
        for name, _ in named:
            self._check_name(folder, "val/val_annotations.txt", name)
        files = [(images / name, label) for name, label in named]
        if not files:
            raise self._incomplete(folder, "val/val_annotations.txt has no image of the classes in wnids.txt")
        return files

    def _fingerprint(self, folder: Path, files: LabelledFiles) -> str:
        """Changes with any file's name, label, size or modification time. Reads no file."""
        digest = hashlib.sha256()
        for file, label in files:
            try:
                status = file.stat()
            except FileNotFoundError:
                raise self._incomplete(folder, f"{file.relative_to(folder)} is missing") from None
            digest.update(f"{file.relative_to(folder)} {label} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def _decode(self, files: LabelledFiles, what: str) -> Tensor:
        images = decode_images(files, f"{self.name}, {what}")
        if images.shape[1:] != (3, 64, 64):
            raise UserError(
                f"{files[0][0]} is not 64x64 like the images of Tiny ImageNet; use folder:PATH for other images"
            )
        return images

    def _check_name(self, folder: Path, where: str, name: str) -> None:
        """Reject names that lead out of the folder."""
        if name in (".", "..") or not set(name).isdisjoint("/\\\0"):
            raise self._incomplete(folder, f"{where} lists {name!r}, which is not a file name")

    def _incomplete(self, folder: Path, why: str) -> UserError:
        return UserError(f"{folder} is incomplete: {why}; {self.fetch_again(folder)}")


def cache_name(classes: int) -> str:
    """The file name of the decoded images of this many classes."""
    return f"fedmim-cache-{classes}.safetensors"


def _wnids(folder: Path) -> list[str]:
    return _text(folder / "wnids.txt").split()


def _text(path: Path) -> str:
    # Names are ASCII: other bytes mean damage, and are reported as a name that does not exist.
    return path.read_text(encoding="ascii", errors="replace")


TINY_IMAGENET = TinyImageNet(
    name="tiny-imagenet",
    title="TinyImageNet",
    description="colour 64x64 photographs (Stanford CS231n)",
    train_size=100_000,
    test_size=10_000,
    classes=200,
    folder="tiny-imagenet-200",
    # Stanford publishes no MD5; public loaders use this one.
    downloads=(Download("https://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
    inside="tiny-imagenet-200",
    defaults=IMAGE_DEFAULTS,
    target=0.2,
)
