"""synthetic(alpha, beta) of Li et al. 2020 ("Federated Optimization in Heterogeneous Networks", section 5.1).

Client k has 60 features and 10 classes, with its own model and its own distribution of inputs:

    y = argmax(W_k x + b_k),   W_k, b_k ~ N(u_k, 1),   u_k ~ N(0, alpha)
    x ~ N(v_k, Sigma),         Sigma_jj = j^-1.2,      v_kj ~ N(B_k, 1),   B_k ~ N(0, beta)

It has 50 samples plus floor(lognormal(4, 2)); the first 80 % are its training data. `synthetic:A,B` has 30 clients as
in the paper, `synthetic:A,B,N` has N. In `synthetic:iid` all clients have the same W and b, with entries from N(0, 1),
and v = 0.

Where the paper and its code (github.com/litian96/FedProx) differ: the paper writes N(0, alpha) and N(0, beta) like
variances, the code uses alpha and beta as standard deviations. They are standard deviations here, so that
synthetic:0.5,0.5 is what the paper's experiments used. The code trains on 90 % of a client's samples; this uses the
paper's 80 %.

u_k adds the same number to all of a client's scores, so alpha does not change any label. What makes clients differ is
that each has its own W_k and b_k for every alpha, and beta.

The random numbers of a client depend only on its number. So all (alpha, beta) have the same client sizes, the first 30
of 100 clients are the 30 of the smaller data set, and the data is the same for all seeds of a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Self

from fedmim.data.descriptor import Dataset, DatasetDescriptor
from fedmim.data.keyed_generator import keyed_generator
from fedmim.data.lazy_arrays import Floats, Integers, Tensor, np, torch
from fedmim.errors import UserError
from fedmim.memory import check_memory

FEATURES, CLASSES = 60, 10
MOST_CLIENTS = 1_000_000
LARGEST_DEVIATION = 1e3


@dataclass(frozen=True, kw_only=True)
class Synthetic(DatasetDescriptor):
    """synthetic(alpha, beta); without alpha and beta the i.i.d. data."""

    deviations: tuple[float, float] | None = None
    """alpha and beta."""
    clients: int = 30

    @property
    def names(self) -> tuple[str, ...]:
        """Includes the i.i.d. data."""
        return self.name, "synthetic:iid"

    def named(self, name: str) -> Self | None:
        """The data with the parameters after the colon."""
        kind, _, text = name.partition(":")
        if kind != "synthetic":
            return None
        words = text.split(",")
        iid = words[0] == "iid"
        clients = words[1 if iid else 2 :]
        deviations = None if iid else tuple(_deviation(name, word) for word in words[:2])
        if len(clients) > 1 or (deviations is not None and len(deviations) != 2):
            raise _wrong(name)
        count = _count(name, clients[0]) if clients else self.clients
        return replace(
            self,
            name=name,
            title=f"Synthetic {text.replace(',', ', ')}" if iid else f"Synthetic({', '.join(words)})",
            deviations=deviations,
            clients=count,
            train_size=self.train_size if count == self.clients else 0,
            test_size=self.test_size if count == self.clients else 0,
            defaults={**self.defaults, "clients": count},
            target=self.target if text == "1,1" else None,
        )

    def load(self, directory: Path) -> Dataset:
        """The samples as float32 features (n, 60); each client has its own test data."""
        sizes = [_size(client) for client in range(self.clients)]
        check_memory(4 * 2 * FEATURES * sum(sizes), f"data: {self.name}", "use fewer clients")
        own = [self._client(client, size) for client, size in enumerate(sizes)]
        cuts = [int(0.8 * size) for size in sizes]
        parts = [(x[:cut], y[:cut]) for (x, y), cut in zip(own, cuts, strict=True)]
        tests = [(x[cut:], y[cut:]) for (x, y), cut in zip(own, cuts, strict=True)]
        return Dataset(
            self.name,
            train=_joined(parts),
            test=_joined(tests),
            classes=CLASSES,
            natural=_places(cuts),
            client_tests=_places([size - cut for size, cut in zip(sizes, cuts, strict=True)]),
        )

    def _client(self, client: int, size: int) -> tuple[Tensor, Tensor]:
        """The samples of a client, in random order."""
        rng = keyed_generator("synthetic", client)
        u, centre, v = rng.standard_normal(), rng.standard_normal(), rng.standard_normal(FEATURES)
        weight, bias = rng.standard_normal((FEATURES, CLASSES)), rng.standard_normal(CLASSES)
        noise = rng.standard_normal((size, FEATURES)) * np.arange(1, FEATURES + 1) ** -0.6
        if self.deviations is None:
            common = keyed_generator("synthetic", "iid")
            return _labelled(noise, common.standard_normal((FEATURES, CLASSES)), common.standard_normal(CLASSES))
        alpha, beta = self.deviations
        return _labelled(beta * centre + v + noise, alpha * u + weight, alpha * u + bias)


def _size(client: int) -> int:
    """The number of samples of a client."""
    return 50 + int(keyed_generator("synthetic size", client).lognormal(4, 2))


def _labelled(x: Floats, weight: Floats, bias: Floats) -> tuple[Tensor, Tensor]:
    y: Integers = (x @ weight + bias).argmax(axis=1)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def _joined(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.cat([x for x, _ in samples]), torch.cat([y for _, y in samples])


def _places(sizes: list[int]) -> tuple[Tensor, ...]:
    return tuple(torch.arange(start, end) for start, end in pairwise(accumulate(sizes, initial=0)))


def _deviation(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= LARGEST_DEVIATION:
        raise _wrong(name)
    return value


def _count(name: str, text: str) -> int:
    if not (text.isdecimal() and len(text) < 10 and 1 <= int(text) <= MOST_CLIENTS):
        raise _wrong(name)
    return int(text)


def _wrong(name: str) -> UserError:
    return UserError(
        f"data: {name} must be synthetic:A,B with alpha and beta from 0 to {LARGEST_DEVIATION:g}, for example "
        f"synthetic:1,1, or synthetic:iid; a number of clients may follow: synthetic:1,1,100"
    )


SYNTHETIC = Synthetic(
    name="synthetic:A,B",
    description="natural clients with their own models and inputs, generated locally: no download (Li et al. 2020)",
    train_size=7399,
    test_size=1867,
    classes=CLASSES,
    defaults={
        "model": "logistic",
        "split": "natural",
        "clients": 30,
        "participation": 0.33,  # 10 of 30, as in the paper
        "rounds": 200,
        "batch_size": 10,
        "local_epochs": 20,
        "lr": 0.01,
        "lr_decay": 1.0,
        "weight_decay": 0.0,
        "weighting": "samples",
    },
    target=0.7,
)
