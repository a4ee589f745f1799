"""Data sets as resident tensors; splits over clients; colour shift; augmentation. No model, no algorithm."""

from fedmim.data.catalogue import Known, known, load
from fedmim.data.clients import Clients
from fedmim.data.colour import ColourShift
from fedmim.data.dataset import Dataset
from fedmim.data.fetching import fetch
from fedmim.data.holdout import with_validation
from fedmim.data.locate import data_directory
from fedmim.data.splits import SPLITS, partition
from fedmim.data.transforms import CropFlip, Normalise

__all__ = [
    "SPLITS",
    "Clients",
    "ColourShift",
    "CropFlip",
    "Dataset",
    "Known",
    "Normalise",
    "data_directory",
    "fetch",
    "known",
    "load",
    "partition",
    "with_validation",
]
