"""The list of all data sets: find, load or download one by name, and see which are available.

To add a data set, write a file with its descriptor and add it to `DATA_SETS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedmim.data.cifar import CIFAR10, CIFAR100
from fedmim.data.descriptor import Dataset, DatasetDescriptor, data_directory
from fedmim.data.digits import DIGITS
from fedmim.data.fashion_mnist import FASHION_MNIST
from fedmim.data.femnist import FEMNIST
from fedmim.data.heart_disease import HEART_DISEASE
from fedmim.data.image_folder import IMAGE_FOLDER
from fedmim.data.mnist1d import MNIST1D
from fedmim.data.own_tensors import OWN_TENSORS
from fedmim.data.shakespeare import SHAKESPEARE
from fedmim.data.synthetic import SYNTHETIC
from fedmim.data.tiny_imagenet import TINY_IMAGENET
from fedmim.errors import UserError, unknown

DATA_SETS: tuple[DatasetDescriptor, ...] = (
    DIGITS,
    MNIST1D,
    FASHION_MNIST,
    CIFAR10,
    CIFAR100,
    TINY_IMAGENET,
    HEART_DISEASE,
    SYNTHETIC,
    FEMNIST,
    SHAKESPEARE,
    IMAGE_FOLDER,
    OWN_TENSORS,
)


@dataclass(frozen=True)
class Availability:
    """A data set, and whether it is available."""

    descriptor: DatasetDescriptor
    """The description of the data set."""
    found: Path | None = None
    """The folder with its files; None if there is none, or if the data needs no files."""
    problem: str | None = None
    """Why it cannot be loaded, in one line; None if no problem was found."""

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self.descriptor.name


def find_descriptor(name: str) -> DatasetDescriptor | None:
    """The data set of this name; None if there is none."""
    return next((found for each in DATA_SETS if (found := each.named(name))), None)


def known(data_dir: Path | str | None = None) -> list[Availability]:
    """All data sets, and whether each is available. Opens no files except Tiny ImageNet's list of classes."""
    return [_availability(each, data_directory(data_dir)) for each in DATA_SETS]


def load(name: str, data_dir: Path | str | None = None, image_size: int | None = None) -> Dataset:
    """Load the data set of this name. `image_size` resizes the images; only `folder:PATH` supports it."""
    descriptor = find_descriptor(name)
    if descriptor is None:
        raise unknown("data", name, [*(form for each in DATA_SETS for form in each.names), "file.py:function"])
    if image_size is not None:
        descriptor = descriptor.resized(image_size)
    try:
        return descriptor.load(data_directory(data_dir))
    except OSError as error:
        raise UserError(f"{error.filename or name} cannot be read ({error.strerror or error})") from error


def fetch(name: str, data_dir: Path | str | None = None) -> Path:
    """Download a data set into `data_dir` if it is not there yet; return its folder."""
    from fedmim.data.fetching import fetch_files  # not at the top: it imports the HTTP client

    descriptors = {each.name: each for each in DATA_SETS}
    if name not in descriptors:
        raise unknown("data", name, [each.name for each in DATA_SETS if each.downloads or each.script])
    descriptor, directory = descriptors[name], data_directory(data_dir)
    if descriptor.script:
        return _created(descriptor, directory)
    if not descriptor.downloads:
        raise UserError(f"{name} needs no download")
    if not (directory / descriptor.folder).exists():
        try:
            return descriptor.find(directory)  # it may exist in another layout
        except UserError:
            fetch_files(descriptor, directory)
    return descriptor.find(directory)


def _created(descriptor: DatasetDescriptor, directory: Path) -> Path:
    """The folder of data that only a script can create, or the error with the commands."""
    if not (directory / descriptor.folder).exists():
        raise UserError(
            f"{descriptor.name} cannot be downloaded as it is; {descriptor.how_to_get(directory)}; then set "
            f"--data-dir to the folder that contains {descriptor.folder}"
        )
    return descriptor.find(directory)


def _availability(descriptor: DatasetDescriptor, directory: Path) -> Availability:
    if not descriptor.folder:
        return Availability(descriptor)
    try:
        return Availability(descriptor, found=descriptor.find(directory))
    except (UserError, OSError) as error:  # OSError: no permission to search a directory
        return Availability(descriptor, problem=str(error))
