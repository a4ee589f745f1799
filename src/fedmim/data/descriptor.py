"""The description of a data set (name, size, files, downloads, default settings), and its tensors when loaded.

Each data set has its descriptor in its own file; `catalogue.DATA_SETS` lists them all. The command line reads the
descriptors when it starts, so these files import NumPy and PyTorch through `lazy_arrays`.
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
# Small enough for a first result on a laptop.
IMAGE_DEFAULTS = {"model": "cnn", "rounds": 300, "local_epochs": 1, "eval_every": 10}


def data_directory(data_dir: Path | str | None = None) -> Path:
    """The given directory, else the environment variable FEDMIM_DATA, else ./data."""
    return Path(data_dir or os.environ.get(DATA_VARIABLE) or "data").expanduser()


@dataclass(frozen=True)
class Dataset:
    """A data set in memory: training and test tensors, and how a batch is prepared for a model."""

    name: str
    """The value of `--data`."""
    train: tuple[Tensor, Tensor]
    """x: uint8 images (n, C, H, W), float features (n, ...) or tokens (n, length); y: int64 (n,)."""
    test: tuple[Tensor, Tensor]
    """x and y in the same form."""
    classes: int
    """The number of classes."""
    natural: tuple[Tensor, ...] | None = None
    """For data that comes with clients: int64 indices into `train`, one tensor per client."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """Applied to every batch, training and test: uint8 to normalised float32. None: x needs no preparation."""
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    """Applied only to training batches, before `prepare`. None: no augmentation."""
    tokens: int | None = None
    """For text: the number of different tokens; x is uint8 and `prepare` makes it int64. None: x is no text."""
    client_names: tuple[str, ...] | None = None
    """The names of the natural clients, if the data has them."""
    client_tests: tuple[Tensor, ...] | None = None
    """The test data of each natural client: int64 indices into `test`, which may be empty. None: not known."""


@dataclass(frozen=True)
class Download:
    """One file on an official site."""

    address: str
    md5: str | None
    """The published checksum; None if there is none."""


@dataclass(frozen=True, kw_only=True)
class DatasetDescriptor:
    """The description of one data set. A subclass defines how to `load` it and which files `find` needs."""

    name: str
    """The value of `--data`."""
    description: str
    title: str | None = None
    """The name as written in the paper; None: the same as `name`."""
    train_size: int = 0
    """Number of training samples; 0 if it depends on the user's files, as may the next two."""
    test_size: int = 0
    classes: int = 0
    folder: str = ""
    """The folder in the data directory; empty if the data needs none."""
    downloads: tuple[Download, ...] = ()
    script: str = ""
    """The commands that create the folder, for data that cannot be downloaded as it is."""
    inside: str = ""
    """The folder of the data in the archive; empty if the files are at the top level."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings with a different default for this data set."""
    target: float | None = None
    """The accuracy for `rounds to target`: a typical run with the defaults reaches it about halfway."""

    @property
    def names(self) -> tuple[str, ...]:
        """The forms of the name to list in messages."""
        return (self.name,)

    def named(self, name: str) -> Self | None:
        """The data set called `name` if it is this one, else None; a subclass may parse what follows a colon."""
        return self if name == self.name else None

    def resized(self, image_size: int) -> Self:
        """The same data with images resized to squares, if supported."""
        raise UserError(f"image_size: only folder:PATH supports it; {self.name} has a fixed image size")

    def find(self, directory: Path) -> Path:
        """The folder of this data set in `directory`; raises UserError if files are missing."""
        return self.require_files(directory / self.folder, ())

    def load(self, directory: Path) -> Dataset:
        """The data as tensors, from its folder in `directory`."""
        raise NotImplementedError

    def require_files(self, folder: Path, files: Sequence[str]) -> Path:
        """The folder, if it has all of these files. Opens no file."""
        if not folder.is_dir():
            raise UserError(
                f"{self.name}: no folder {folder}. Set its parent directory with --data-dir (or {DATA_VARIABLE}), "
                f"or {self.how_to_get(folder.parent)}"
            )
        missing = [file for file in files if not (folder / file).exists()]
        if missing:
            raise UserError(f"{self.name}: {folder} is incomplete, {missing[0]} is missing: {self.fetch_again(folder)}")
        return folder

    def damaged(self, path: Path, why: str) -> UserError:
        """The error for a file with wrong content."""
        return UserError(f"{path} is damaged: {why}; {self.fetch_again(path.parent)}")

    def how_to_get(self, directory: Path) -> str:
        """What to do if the folder is missing in `directory`."""
        if self.script:
            return f"create it: {self.script}"
        return f"download it: fedmim data fetch {self.name} --data-dir {directory}"

    def fetch_again(self, folder: Path) -> str:
        """The remedy for a folder with wrong content."""
        if self.script:
            return f"move {folder} away and create it again: {self.script}"
        return f"move {folder} away and run: fedmim data fetch {self.name} --data-dir {folder.parent}"


@dataclass(frozen=True, kw_only=True)
class OwnData(DatasetDescriptor):
    """The user's own data, given as KIND:PATH."""

    path: Path = Path()

    def named(self, name: str) -> Self | None:
        """The data at the path after the colon."""
        kind, _, path = name.partition(":")
        if not path or kind != self.name.partition(":")[0]:
            return None
        full = Path(path).expanduser()
        return replace(self, name=f"{kind}:{full}", path=full)
