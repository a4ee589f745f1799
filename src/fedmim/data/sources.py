"""The official addresses of the data sets, with the MD5 of each file where one is known.

CIFAR's sums are published on its page, Fashion-MNIST's in its README; Tiny ImageNet's is the one that public
loaders agree on. UCI publishes none: there the checksums inside the
zip have to do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Download:
    """One file of an official site."""

    address: str
    md5: str | None

    @property
    def file(self) -> str:
        """The name that the file has on disk."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and the folder that it becomes."""

    name: str
    folder: str
    downloads: tuple[Download, ...]
    inside: str = ""
    """The folder within the archive that is the data set; empty where the archive has none."""


_KRIZHEVSKY = "https://www.cs.toronto.edu/~kriz"
_ZALANDO = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"

SOURCES = (
    Source(
        "fashion-mnist",
        "fashion-mnist",
        (
            Download(f"{_ZALANDO}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            Download(f"{_ZALANDO}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            Download(f"{_ZALANDO}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            Download(f"{_ZALANDO}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    ),
    Source(
        "cifar10",
        "cifar-10-batches-py",
        (Download(f"{_KRIZHEVSKY}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
        inside="cifar-10-batches-py",
    ),
    Source(
        "cifar100",
        "cifar-100-python",
        (Download(f"{_KRIZHEVSKY}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
        inside="cifar-100-python",
    ),
    Source(
        "tiny-imagenet",
        "tiny-imagenet-200",
        (Download("https://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
        inside="tiny-imagenet-200",
    ),
    Source(
        "heart-disease",
        "heart-disease",
        (Download("https://archive.ics.uci.edu/static/public/45/heart+disease.zip", None),),
    ),
)
