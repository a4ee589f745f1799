"""Data sets as tensors in memory, splits over clients, colour shift and augmentation."""

from fedmim.data.catalogue import Availability, fetch, known, load
from fedmim.data.clients import Clients
from fedmim.data.colour import ColourShift
from fedmim.data.descriptor import Dataset, DatasetDescriptor, data_directory
from fedmim.data.holdout import with_validation
from fedmim.data.splits import SPLITS, partition
from fedmim.data.transforms import CropFlip, Normalise

__all__ = [
    "SPLITS",
    "Availability",
    "Clients",
    "ColourShift",
    "CropFlip",
    "Dataset",
    "DatasetDescriptor",
    "Normalise",
    "data_directory",
    "fetch",
    "known",
    "load",
    "partition",
    "with_validation",
]
