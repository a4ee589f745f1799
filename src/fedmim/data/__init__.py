"""Data sets as tensors in memory, splits over clients, colour shift and augmentation."""

from fedmim.data.catalogue import Availability, fetch, known, load
from fedmim.data.clients import Clients
from fedmim.data.colour import ColourShift
from fedmim.data.descriptor import Dataset, DatasetDescriptor, data_directory
from fedmim.data.global_randomness import KeyedRandomness
from fedmim.data.holdout import with_validation
from fedmim.data.live import LiveData
from fedmim.data.reading import Collate, Columns, Reader, is_pair
from fedmim.data.splits import SPLITS, partition
from fedmim.data.transforms import CropFlip, Normalise

__all__ = [
    "SPLITS",
    "Availability",
    "Clients",
    "Collate",
    "ColourShift",
    "Columns",
    "CropFlip",
    "Dataset",
    "DatasetDescriptor",
    "KeyedRandomness",
    "LiveData",
    "Normalise",
    "Reader",
    "data_directory",
    "fetch",
    "is_pair",
    "known",
    "load",
    "partition",
    "with_validation",
]
