"""Task: a model, the clients' data, the test data and the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedmim import data as datasets
from fedmim.errors import UserError
from fedmim.models import Loss, make_model

Samples: TypeAlias = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """A federated learning problem.

    `clients` is any sequence of (x, y) pairs of tensors. Items are accessed only when needed, so they may be computed
    or read from disk. If this is expensive, give the sequence an attribute `sizes` with the number of samples of each
    client; otherwise each client of a round is accessed once more to get its size.
    """

    model: nn.Module
    clients: Sequence[Samples]
    test: Samples
    loss: Loss = F.cross_entropy
    """Mean loss of a minibatch, as a function of outputs and targets."""
    metric: Callable[[Tensor, Tensor], Any] | None = None
    """Score on the whole test set, as a function of outputs and targets; default: accuracy for class labels."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """Applied to every batch of x, for example to normalise uint8 images."""
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    """Applied to training batches before `prepare`; must draw only from the given generator."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise UserError(f"model: must be a torch.nn.Module, got {type(self.model).__name__}")
        if not len(self.clients):
            raise UserError("clients: must not be empty")
        check_samples("test", self.test)

    def size(self, client: int) -> int:
        """The number of samples of a client."""
        sizes = getattr(self.clients, "sizes", None)
        return len(self.samples(client)[0]) if sizes is None else int(sizes[client])

    def samples(self, client: int, device: torch.device | str = "cpu") -> Samples:
        """A client's x and y."""
        pair = self.clients[client]
        check_samples(f"client {client}", pair)
        x, y = pair
        return x.to(device), y.to(device)

    def score(self, outputs: Tensor, targets: Tensor) -> float | None:
        """The metric; None for regression without a metric."""
        if self.metric is not None:
            return float(self.metric(outputs, targets))
        if targets.is_floating_point() or outputs.dim() != targets.dim() + 1:
            return None
        return float((outputs.argmax(1) == targets).double().mean())

    @classmethod
    def named(
        cls,
        data: str = "digits",
        *,
        split: str = "dirichlet:0.1",
        clients: int = 100,
        model: str = "mlp",
        seed: int = 0,
        data_dir: Path | str | None = None,
        augment: bool = True,
        colour: float = 0.0,
        image_size: int | None = None,
        validation: float = 0.0,
    ) -> Task:
        """Create a task from a built-in data set, split over clients, and a built-in model.

        The seed determines the split, the model's initial weights and the clients' colours; the test data is fixed.
        With `validation`, this fraction of the training data is held out and replaces the test data.
        """
        source = datasets.load(data, data_dir, image_size)
        if validation:
            source = datasets.with_validation(source, validation)
        return cls.of_data(source, split=split, clients=clients, model=model, seed=seed, augment=augment, colour=colour)

    @classmethod
    def of_data(
        cls,
        source: datasets.Dataset,
        *,
        split: str,
        clients: int,
        model: str,
        seed: int,
        augment: bool,
        colour: float,
    ) -> Task:
        """Create a task from a loaded data set, as `named` does."""
        x, y = source.train
        parts = datasets.partition(y, split, clients, seed, source.natural)
        shift = datasets.ColourShift(colour, seed) if colour else None
        return cls(
            model=make_model(model, tuple(x.shape[1:]), source.classes, seed, source.tokens),
            clients=datasets.Clients(x, y, parts, colour=shift),
            test=source.test,
            prepare=source.prepare,
            augment=source.augment if augment else None,
        )

    @classmethod
    def from_dataset(
        cls,
        model: nn.Module,
        train: Any,
        test: Any,
        *,
        split: str = "iid",
        clients: int = 100,
        seed: int = 0,
        **options: Any,
    ) -> Task:
        """Create a task from a map-style torch Dataset of (x, y), read once into tensors and split over clients.

        Other options (loss, metric, prepare, augment) are passed to Task.
        """
        x, y = read_dataset(train)
        parts = datasets.partition(y, split, clients, seed)
        return cls(model=model, clients=datasets.Clients(x, y, parts), test=read_dataset(test), **options)

    @classmethod
    def from_datasets(cls, model: nn.Module, clients: Sequence[Any], test: Any, **options: Any) -> Task:
        """Create a task from one map-style torch Dataset of (x, y) per client, each read once into tensors."""
        return cls(model, [read_dataset(client) for client in clients], read_dataset(test), **options)


def read_dataset(dataset: Any) -> Samples:
    """Convert a map-style torch Dataset of (x, y) to a pair of tensors; a pair of tensors is returned unchanged."""
    if isinstance(dataset, tuple) and len(dataset) == 2 and all(isinstance(part, Tensor) for part in dataset):
        return dataset
    items = [dataset[i] for i in range(len(dataset))]
    if not items:
        raise UserError("dataset: must not be empty")
    x = torch.stack([torch.as_tensor(item[0]) for item in items])
    y = torch.stack([torch.as_tensor(item[1]) for item in items])
    return x, y


def check_samples(where: str, pair: Any) -> None:
    """Reject anything but a pair of tensors of the same length."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(part, Tensor) for part in pair)):
        raise UserError(f"{where}: must be a pair (x, y) of tensors, got {type(pair).__name__}")
    if len(pair[0]) != len(pair[1]):
        raise UserError(f"{where}: x has {len(pair[0])} samples and y has {len(pair[1])}")
    if not len(pair[0]):
        raise UserError(f"{where}: must have at least one sample")
