"""What is known about one data set (name, size, files, downloads, default settings), and the tensors it loads.

Each data set defines its descriptor in its own file, and `catalogue.DATA_SETS` lists them all. The command line reads
descriptors at its start, so these files take NumPy and PyTorch from `lazy_arrays`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from fedmim.data.lazy_arrays import Tensor, torch
from fedmim.errors import UserError

DATA_VARIABLE = "FEDMIM_DATA"
# Settings for images that are small enough for a first result on a laptop.
IMAGE_DEFAULTS = {"model": "cnn", "rounds": 300, "local_epochs": 1, "eval_every": 10}


def data_directory(data_dir: Path | str | None = None) -> Path:
    """The given directory, else that of the environment variable FEDMIM_DATA, else ./data."""
    return Path(data_dir or os.environ.get(DATA_VARIABLE) or "data").expanduser()


@dataclass(frozen=True)
class Dataset:
    """Tensors that stay in memory: the training and the test part, and how a batch is prepared for a model."""

    name: str
    train: tuple[Tensor, Tensor]
    """x: uint8 images (n, C, H, W) or float features (n, ...); y: int64 (n,)."""
    test: tuple[Tensor, Tensor]
    classes: int
    natural: tuple[Tensor, ...] | None = None
    """Where the data has clients of its own: int64 indices into `train`, one tensor per client."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """Applied to every batch, training and test: uint8 to normalised float32. None: x is ready as it is."""
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    """Applied to training batches only, before `prepare`. None where it makes no sense."""


@dataclass(frozen=True)
class Download:
    """One file on an official site."""

    address: str
    md5: str | None
    """The published checksum, None where there is none."""


@dataclass(frozen=True, kw_only=True)
class DatasetDescriptor:
    """All facts about one data set. A subclass says how to `load` it, and which files `find` looks for."""

    name: str
    """The name that `--data` takes."""
    description: str
    title: str | None = None
    """The name as the paper writes it; None where it is `name`."""
    train_size: int = 0
    """Samples in the official training part; 0 for the user's own data, as in the next two."""
    test_size: int = 0
    classes: int = 0
    folder: str = ""
    """The folder in the data directory; empty where the data needs none."""
    downloads: tuple[Download, ...] = ()
    inside: str = ""
    """The folder in the archive that holds the data; empty where the files are at its top."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings whose default differs for this data set."""
    target: float | None = None
    """The accuracy for `rounds to target`: one that a fair run with the defaults passes midway."""

    @property
    def names(self) -> tuple[str, ...]:
        """The forms of the name that messages list."""
        return (self.name,)

    def named(self, name: str) -> Self | None:
        """The data set that `name` asks for, if it is this one; a subclass may read what follows a colon."""
        return self if name == self.name else None

    def resized(self, image_size: int) -> Self:
        """The same data with images resized to squares, where that is possible."""
        raise UserError(f"image_size is for folder:PATH only, and {self.name} has a size of its own: leave it out")

    def find(self, directory: Path) -> Path:
        """The complete folder of this data set in `directory`; raises UserError where files are missing."""
        return self.require_files(directory / self.folder, ())

    def load(self, directory: Path) -> Dataset:
        """The data as tensors, from its folder in `directory`."""
        raise NotImplementedError

    def require_files(self, folder: Path, files: Sequence[str]) -> Path:
        """The folder, if it has all of these files; nothing is opened."""
        if not folder.is_dir():
            raise UserError(
                f"{self.name}: no folder {folder}. Give the directory that has it by --data-dir (or {DATA_VARIABLE}), "
                f"or download it: fedmim data fetch {self.name} --data-dir {folder.parent}"
            )
        missing = [file for file in files if not (folder / file).exists()]
        if missing:
            raise UserError(f"{self.name}: {folder} is incomplete, {missing[0]} is missing: {self.fetch_again(folder)}")
        return folder

    def damaged(self, path: Path, why: str) -> UserError:
        """The error for a file with wrong content."""
        return UserError(f"{path} is damaged: {why}; {self.fetch_again(path.parent)}")

    def fetch_again(self, folder: Path) -> str:
        """The remedy for a folder with wrong content."""
        return f"move {folder} away and run: fedmim data fetch {self.name} --data-dir {folder.parent}"


@dataclass(frozen=True, kw_only=True)
class OwnData(DatasetDescriptor):
    """The user's own data, named by its path: KIND:PATH."""

    path: Path = Path()

    def named(self, name: str) -> Self | None:
        """The data at the path that follows the colon."""
        kind, _, path = name.partition(":")
        if not path or kind != self.name.partition(":")[0]:
            return None
        full = Path(path).expanduser()
        return replace(self, name=f"{kind}:{full}", path=full)
