"""Splits: which client has which training samples.

    iid              shuffled
    dirichlet:U      each client has its own label prior, drawn from Dir(U)
    pathological:C   each client has at most C classes
    natural          the clients of the data itself

Each sample goes to exactly one client. The split depends only on the seed.
"""

from __future__ import annotations

import math

from fedmim.data.keyed_generator import keyed_generator
from fedmim.data.label_skew import dirichlet_counts, pathological_counts
from fedmim.data.lazy_arrays import Integers, Tensor, np, torch
from fedmim.errors import UserError, unknown
from fedmim.memory import check_memory

SPLITS = ("iid", "dirichlet:U", "pathological:C", "natural")
"""The kinds of splits over clients, as `--split` takes them."""


def partition(
    labels: Tensor, split: str, clients: int, seed: int, natural: tuple[Tensor, ...] | None = None
) -> list[Tensor]:
    """The indices of each client's samples, ascending int64. Each sample belongs to exactly one client.

    Client sizes differ by at most one for `iid` and `dirichlet`; see `pathological_counts` for `pathological`. For
    `natural`, `clients` may be 0: as many as the data has.
    """
    kind, _, parameter = split.partition(":")
    if kind == "natural" and not parameter:
        return _natural(clients, natural)
    quotas = _quotas(len(labels), clients)
    rng = keyed_generator("split", seed)
    if kind == "iid" and not parameter:
        return _deal(rng.permutation(np.repeat(np.arange(clients), quotas)), np.arange(len(labels)), clients)
    if kind not in ("dirichlet", "pathological"):
        raise unknown("split", split, SPLITS)
    _, classes, sizes = np.unique(labels.cpu().numpy(), return_inverse=True, return_counts=True)
    check_memory(
        50 * clients * len(sizes),  # about six tables (clients, classes)
        f"split: {split} of {len(sizes):,} classes over {clients:,} clients",
        "lower clients or use iid",
    )
    if kind == "dirichlet":
        counts = dirichlet_counts(sizes, quotas, _concentration(split, parameter), rng)
    else:
        counts = pathological_counts(sizes, clients, _classes_per_client(split, parameter), rng)
    # For each class: its samples in random order, and their owners in the order of clients.
    samples = [rng.permutation(np.flatnonzero(classes == label)) for label in range(len(sizes))]
    owners = [np.repeat(np.arange(clients), counts[:, label]) for label in range(len(sizes))]
    return _deal(np.concatenate(owners), np.concatenate(samples), clients)


def _deal(owners: Integers, samples: Integers, clients: int) -> list[Tensor]:
    """The samples of each owner, ascending."""
    ordered = torch.from_numpy(samples[np.lexsort((samples, owners))])
    return list(torch.split(ordered, np.bincount(owners, minlength=clients).tolist()))


def _quotas(samples: int, clients: int) -> Integers:
    """The number of samples of each client; they differ by at most one."""
    if clients < 1:
        raise UserError(f"clients: must be at least 1, got {clients}")
    if clients > samples:
        raise UserError(f"clients: must be at most {samples}, the number of training samples, got {clients}")
    return samples // clients + (np.arange(clients) < samples % clients)


def _natural(clients: int, natural: tuple[Tensor, ...] | None) -> list[Tensor]:
    if natural is None:
        others = ", ".join(split for split in SPLITS if split != "natural")
        raise UserError(f"split 'natural': this data has no natural clients; use one of {others}")
    if clients not in (0, len(natural)):
        raise UserError(f"clients: must be {len(natural)}, the number of natural clients, or 0 for all, got {clients}")
    return list(natural)


def _concentration(split: str, parameter: str) -> float:
    try:
        value = float(parameter)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"split {split!r}: U must be a finite number above 0, for example dirichlet:0.1")
    return value


def _classes_per_client(split: str, parameter: str) -> int:
    if not (parameter.isdecimal() and len(parameter) < 19 and int(parameter) >= 1):
        raise UserError(f"split {split!r}: C must be a whole number above 0, for example pathological:2")
    return int(parameter)
