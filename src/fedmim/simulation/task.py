"""Task: a model, the clients' data, the test data and the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedmim import data as datasets
from fedmim.errors import UserError, check_type, unknown
from fedmim.models import Loss, make_model
from fedmim.simulation.datasets import read_live, read_test, split_in_memory, split_live
from fedmim.simulation.live import LiveSamples
from fedmim.simulation.randomness import key
from fedmim.simulation.samples import Samples, are_two_tensors, check_samples, to_device
from fedmim.simulation.settings import Execution, Settings
from fedmim.structure import length

METHOD = "a method such as fedmim.FedAvg()"  # of an argument


@dataclass(frozen=True, repr=False)
class Task:
    """A federated learning problem.

    `clients` is any sequence of pairs (x, y). Items are accessed only when needed, so they may be computed or read from
    disk. If this is expensive, give the sequence an attribute `sizes` with the number of samples of each client;
    otherwise each client of a round is accessed once more to get its size.

    x, y and the model's outputs are tensors, or tuples, lists or dicts of tensors. The first dimension of x and y is
    the samples. The model is called as `model(x)` for a tensor, `model(*x)` for a tuple or list, and `model(**x)` for a
    dict.
    """

    model: nn.Module
    """The network, with its initial weights."""
    clients: Sequence[Samples | datasets.LiveData]
    """The training data of each client."""
    test: Samples
    """The test data (x, y)."""
    loss: Loss = F.cross_entropy
    """Mean loss of a minibatch, as a function of outputs and targets: what the model returned, and y."""
    metric: Callable[[Any, Any], Any] | None = None
    """Score on the whole test set, as a function of outputs and targets; default: accuracy for class labels."""
    prepare: Callable[[Any], Any] | None = None
    """Applied to every batch of x, for example to normalise uint8 images."""
    augment: Callable[[Any, torch.Generator], Any] | None = None
    """Applied to training batches of x before `prepare`; must draw only from the given generator."""
    client_tests: Sequence[Samples | None] | None = None
    """Test data of each client, in the order of `clients`; None for a client without."""
    names: Sequence[str] | None = None
    """The names of the clients; default: their numbers."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise UserError(f"model: must be a torch.nn.Module, got {type(self.model).__name__}")
        check_clients(self.clients, self.names, self.client_tests)
        check_samples("test", self.test)
        if isinstance(self.client_tests, list | tuple):  # others may be slow to access
            for client in range(len(self.clients)):
                self.client_test(client)

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.model.parameters())
        held = getattr(self.clients, "sizes", None)
        if held is None and isinstance(self.clients, list | tuple):  # others may be slow to access
            held = [0 if data is None else _size(data) for data in self.clients]
        samples = f", {sum(held):,} samples" if isinstance(held, list | tuple) else ""
        return (
            f"Task({type(self.model).__name__} with {parameters:,} parameters, {len(self.clients):,} clients{samples}, "
            f"{length(self.test[1]):,} test samples)"
        )

    def name(self, client: int) -> str:
        """The name of a client."""
        return str(client) if self.names is None else self.names[client]

    def size(self, client: int) -> int:
        """The number of samples of a client."""
        sizes = getattr(self.clients, "sizes", None)
        return _size(self.data(client)) if sizes is None else int(sizes[client])

    def data(self, client: int) -> Samples | datasets.LiveData:
        """A client's data as it is in `clients`, checked."""
        data = self.clients[client]
        if not (are_two_tensors(data) or isinstance(data, datasets.LiveData)):
            check_samples(f"client {self.name(client)}", data)
        return data

    def samples(self, client: int, device: torch.device | str = "cpu") -> Samples:
        """A client's x and y; live data is read once, with the same result every time."""
        data = self.data(client)
        if isinstance(data, datasets.LiveData):
            return LiveSamples(data, key("live", client), device).read(torch.arange(len(data)))
        return to_device(data, device)

    def client_test(self, client: int, device: torch.device | str = "cpu") -> Samples | None:
        """A client's own test data; None if it has none."""
        samples = None if self.client_tests is None else self.client_tests[client]
        if samples is None or (isinstance(self.client_tests, datasets.Clients) and not length(samples[1])):
            return None
        check_samples(f"client_tests: client {self.name(client)}", samples)
        return to_device(samples, device)

    def score(self, outputs: Any, targets: Any) -> float | None:
        """The metric; None for regression and for structures without a metric."""
        if self.metric is not None:
            return float(self.metric(outputs, targets))
        if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
            return None
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
        model: str | nn.Module,
        seed: int,
        augment: bool,
        colour: float,
    ) -> Task:
        """Create a task from a loaded data set, as `named` does, with a built-in or your own model."""
        x, y = source.train
        parts = datasets.partition(y, split, clients, seed, source.natural)
        shift = datasets.ColourShift(colour, seed) if colour else None
        if isinstance(model, str):
            model = make_model(model, tuple(x.shape[1:]), source.classes, seed, source.tokens)
        own = split == "natural"  # the data set's own clients
        return cls(
            model=model,
            clients=datasets.Clients(x, y, parts, colour=shift),
            test=source.test,
            prepare=source.prepare,
            augment=source.augment if augment else None,
            client_tests=datasets.Clients(*source.test, source.client_tests) if own and source.client_tests else None,
            names=source.client_names if own else None,
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
        columns: datasets.Columns | None = None,
        collate: datasets.Collate | None = None,
        live: bool = False,
        **options: Any,
    ) -> Task:
        """Create a task from a map-style torch Dataset or a list of items, split over clients.

        An item is (x, y), or a dict whose `columns` of x and y are named: ("image", "label"), or with several inputs
        (("image", "mask"), "label"), which the model gets by name. Data is read once into tensors. Sequences of
        different lengths need `collate`, a function from a list of items to (x, y), as for a DataLoader; it is called
        once. With `live`, the training items are read again for every minibatch, for random transforms: this is slower,
        and the transforms must draw from the global random states, which are seeded by (seed, round, client).

        Other options (loss, metric, prepare, augment) are passed to Task.
        """
        reader = datasets.Reader(columns, collate)
        deal = split_live if live and not datasets.is_pair(train) else split_in_memory
        return cls(model, deal(reader, train, split, clients, seed), read_test(reader, "test", test), **options)

    @classmethod
    def from_datasets(
        cls,
        model: nn.Module,
        clients: Sequence[Any],
        test: Any,
        *,
        client_tests: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        columns: datasets.Columns | None = None,
        collate: datasets.Collate | None = None,
        live: bool = False,
        **options: Any,
    ) -> Task:
        """Create a task from the data of each client: a map-style torch Dataset, a list of items, or a tuple (x, y).

        Items and options are as in `from_dataset`; `collate` is called once for the items of all clients.
        `client_tests` has the test data of each client in the same forms, or None.
        """
        check_clients(clients, names, client_tests)
        reader = datasets.Reader(columns, collate)
        known = [f"client {client}" for client in (range(len(clients)) if names is None else names)]
        data = dict(zip(known, clients, strict=True))
        own = read_live(reader, data) if live else reader.read_each(data)
        tests = client_tests and [
            None if each is None else read_test(reader, f"client_tests: {who}", each)
            for who, each in zip(known, client_tests, strict=True)
        ]
        return cls(model, own, read_test(reader, "test", test), client_tests=tests, names=names, **options)

    @classmethod
    def from_users(
        cls,
        model: nn.Module,
        users: Mapping[Any, Any],
        test: Any,
        *,
        client_test: Mapping[Any, Any] | None = None,
        **options: Any,
    ) -> Task:
        """Create a task from natural clients, {user: samples}, each with samples as in `from_datasets`.

        The users are the names of the clients. `client_test` has the test data of some or all users.
        """
        if not isinstance(users, Mapping):
            raise UserError(f"users: must be a dict of users and samples, got {type(users).__name__}")
        for user in client_test or {}:
            if user not in users:
                raise unknown("client_test: user", str(user), map(str, users))
        tests = None if client_test is None else [client_test.get(user) for user in users]
        names = [str(user) for user in users]
        return cls.from_datasets(model, list(users.values()), test, client_tests=tests, names=names, **options)


def check_arguments(task: object, settings: object, execution: object) -> None:
    """Reject what is not a task, settings and an execution; None stands for the defaults of the last two."""
    check_type("task", task, Task, "a fedmim.Task")
    for name, value, kind in (("settings", settings, Settings), ("execution", execution, Execution)):
        if value is not None:
            check_type(name, value, kind, f"fedmim.{kind.__name__}(...)")


def check_clients(clients: Any, names: Any, client_tests: Any) -> None:
    """Reject dicts, and numbers of clients, names and test data that do not agree."""
    if isinstance(clients, Mapping) or isinstance(client_tests, Mapping):
        raise UserError("clients: must be a sequence, got a dict; use Task.from_users(model, {user: (x, y)}, test)")
    if not len(clients):
        raise UserError("clients: must not be empty")
    for field, given in (("names", names), ("client_tests", client_tests)):
        if given is not None and len(given) != len(clients):
            raise UserError(f"{field}: must be as many as the clients, {len(clients)}, got {len(given)}")
    if names is not None and (len(set(names)) != len(names) or not all(isinstance(name, str) for name in names)):
        raise UserError("names: must be strings, a different one for each client")


def _size(data: Any) -> int:
    return len(data) if isinstance(data, datasets.LiveData) else length(data[0])
