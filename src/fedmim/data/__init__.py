"""Data sets as resident tensors; splits over clients; colour shift; augmentation. No model, no algorithm."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmim.data.catalogue import Availability, known, load
    from fedmim.data.clients import Clients
    from fedmim.data.colour import ColourShift
    from fedmim.data.dataset import Dataset
    from fedmim.data.descriptor import DatasetDescriptor, data_directory
    from fedmim.data.fetching import fetch
    from fedmim.data.holdout import with_validation
    from fedmim.data.splits import SPLITS, partition
    from fedmim.data.transforms import CropFlip, Normalise

# The public names of each module. They are imported when asked for, so that the command line starts without torch.
_MODULES = {
    "catalogue": "Availability known load",
    "clients": "Clients",
    "colour": "ColourShift",
    "dataset": "Dataset",
    "descriptor": "DatasetDescriptor data_directory",
    "fetching": "fetch",
    "holdout": "with_validation",
    "splits": "SPLITS partition",
    "transforms": "CropFlip Normalise",
}
_MODULE_OF = {name: f"fedmim.data.{module}" for module, names in _MODULES.items() for name in names.split()}

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


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fedmim.data' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
