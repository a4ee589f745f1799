"""The data sets by name: what they are, whether they are there, and loading them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedmim.data.cifar import CIFAR10, CIFAR100, find_cifar, load_cifar
from fedmim.data.dataset import Dataset
from fedmim.data.digits import load_digits
from fedmim.data.fashion_mnist import find_fashion_mnist, load_fashion_mnist
from fedmim.data.heart_disease import find_heart_disease, load_heart_disease
from fedmim.data.image_folder import load_image_folder
from fedmim.data.locate import data_directory
from fedmim.data.own_tensors import load_own_tensors
from fedmim.data.tiny_imagenet import CLASSES as TINY_IMAGENET_CLASSES
from fedmim.data.tiny_imagenet import find_tiny_imagenet, load_tiny_imagenet
from fedmim.errors import UserError, unknown


@dataclass(frozen=True)
class Entry:
    """A data set that lies in a folder of the data directory."""

    name: str
    description: str
    folder: str
    train: int
    test: int
    classes: int
    find: Callable[[Path], Path]
    load: Callable[[Path], Dataset]


CATALOGUE = (
    Entry(
        "fashion-mnist",
        "grey 28x28 images of clothing (Xiao et al., 2017)",
        "fashion-mnist",
        60_000,
        10_000,
        10,
        find_fashion_mnist,
        load_fashion_mnist,
    ),
    Entry(
        "cifar10",
        "colour 32x32 photographs (Krizhevsky, 2009)",
        CIFAR10.folder,
        50_000,
        10_000,
        10,
        partial(find_cifar, CIFAR10),
        partial(load_cifar, CIFAR10),
    ),
    Entry(
        "cifar100",
        "colour 32x32 photographs, fine labels (Krizhevsky, 2009)",
        CIFAR100.folder,
        50_000,
        10_000,
        100,
        partial(find_cifar, CIFAR100),
        partial(load_cifar, CIFAR100),
    ),
    Entry(
        "tiny-imagenet",
        "colour 64x64 photographs (Stanford CS231n)",
        "tiny-imagenet-200",
        100_000,
        10_000,
        TINY_IMAGENET_CLASSES,
        find_tiny_imagenet,
        load_tiny_imagenet,
    ),
    Entry(
        "heart-disease",
        "patients of four hospitals, the natural clients (UCI)",
        "heart-disease",
        690,
        230,
        2,
        find_heart_disease,
        load_heart_disease,
    ),
)
NAMES = ("digits", *(entry.name for entry in CATALOGUE), "tiny-imagenet:N", "folder:PATH", "tensors:PATH")


@dataclass(frozen=True)
class Known:
    """One line of `fedmim data`. Sizes are those of the official data, None where they are yours."""

    name: str
    description: str
    folder: str | None
    """The folder expected in the data directory; None where the data needs none."""
    found: Path | None
    problem: str | None
    """Why it cannot be loaded, in one line; None where nothing was found wrong."""
    fetchable: bool
    train: int | None = None
    test: int | None = None
    classes: int | None = None


def known(data_dir: Path | str | None = None) -> list[Known]:
    """Every data set, and whether it is there. Looks for files, opens none but Tiny ImageNet's list of classes."""
    digits = Known(
        "digits",
        "grey 8x8 handwritten digits, installed with scikit-learn: no download",
        folder=None,
        found=None,
        problem=None,
        fetchable=False,
        train=1438,
        test=359,
        classes=10,
    )
    return [
        digits,
        *(_look_for(entry, data_directory(data_dir)) for entry in CATALOGUE),
        Known("folder:PATH", "your own images, one sub-folder a class", None, None, None, fetchable=False),
        Known("tensors:PATH", "your own tensors, in a safetensors file", None, None, None, fetchable=False),
    ]


def load(name: str, data_dir: Path | str | None = None, image_size: int | None = None) -> Dataset:
    """The data set of that name; `image_size` resizes the images of `folder:PATH` and is for those alone."""
    try:
        return _load(name, data_dir, image_size)
    except OSError as error:
        raise UserError(f"{error.filename or name} cannot be read ({error.strerror or error})") from error


def _load(name: str, data_dir: Path | str | None, image_size: int | None) -> Dataset:
    kind, _, path = name.partition(":")
    if kind == "folder" and path:
        return load_image_folder(Path(path).expanduser(), image_size)
    if image_size is not None:
        raise UserError(f"image_size is for folder:PATH only, and {name} has a size of its own: leave it out")
    if kind == "tensors" and path:
        return load_own_tensors(Path(path).expanduser())
    if kind == "tiny-imagenet" and path:
        if not path.isdecimal() or not 2 <= int(path) <= TINY_IMAGENET_CLASSES:
            raise UserError(f"data: N of tiny-imagenet:N is how many classes, 2 to {TINY_IMAGENET_CLASSES}, got {path}")
        return load_tiny_imagenet(data_directory(data_dir), int(path))
    if name == "digits":
        return load_digits()
    for entry in CATALOGUE:
        if entry.name == name:
            return entry.load(data_directory(data_dir))
    raise unknown("data", name, NAMES)


def _look_for(entry: Entry, directory: Path) -> Known:
    found, problem = None, None
    try:
        found = entry.find(directory)
    except (UserError, OSError) as error:  # OSError: a directory that may not be searched
        problem = str(error)
    return Known(
        entry.name,
        entry.description,
        entry.folder,
        found,
        problem,
        fetchable=True,
        train=entry.train,
        test=entry.test,
        classes=entry.classes,
    )
