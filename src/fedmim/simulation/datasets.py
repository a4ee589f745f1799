"""The clients of a task from Datasets: read into memory or live, and split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from fedmim.data import Clients, LiveData, Reader, is_pair, partition
from fedmim.errors import UserError
from fedmim.simulation.live import LiveSamples
from fedmim.simulation.randomness import key
from fedmim.simulation.samples import Samples, check_samples
from fedmim.structure import length


def split_in_memory(reader: Reader, train: Any, split: str, clients: int, seed: int) -> Clients:
    """Read a Dataset once and split it over clients."""
    x, y = reader.read("train", train)
    check_samples("train", (x, y))
    return Clients(x, y, partition(class_labels(y, split), split, clients, seed))


def split_live(reader: Reader, train: Any, split: str, clients: int, seed: int) -> list[LiveData]:
    """Split a Dataset over clients that read it live; unless the split is iid, each item is read once for its label."""
    whole = LiveData("train", train, reader)
    labels = torch.arange(len(whole))
    if split != "iid":
        samples = LiveSamples(whole, key("live labels"), "cpu")
        labels = torch.cat([class_labels(samples.read(one)[1], split) for one in labels.split(1)])
    parts = partition(labels, split, clients, seed)
    return [LiveData("train", Subset(train, part.tolist()), reader) for part in parts]


def read_live(reader: Reader, clients: Mapping[str, Any]) -> list[Samples | LiveData]:
    """Live data of each client; a pair (x, y) is in memory anyway."""
    return [each if is_pair(each) else LiveData(who, each, reader) for who, each in clients.items()]


def read_test(reader: Reader, where: str, test: Any) -> Samples:
    """Test data, in memory."""
    return reader.read(where, test, if_random="test data must not be random")


def class_labels(y: Any, split: str) -> Tensor:
    """One number per sample, by which the split can divide."""
    if split == "iid":
        return torch.arange(length(y))
    if not (isinstance(y, Tensor) and y.dim() == 1):
        raise UserError(f"split: {split!r} needs one class label per sample; use iid, or Task.from_datasets")
    return y
