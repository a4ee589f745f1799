"""At most C classes a client, after McMahan et al. (2017): sort by label, cut into shards, deal C to each.

Cuts at fixed places let a shard straddle two classes, and a client then has up to 2C of them. Here every
class is cut into shards of its own, in proportion to its size, and the sizes of the clients are levelled
afterwards by moving single samples between clients that hold the same class.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from fedmim.data.levelling import levelled
from fedmim.errors import UserError

Counts = NDArray[np.int64]


def pathological_counts(sizes: Counts, clients: int, per_client: int, rng: np.random.Generator) -> Counts:
    """How many samples of each class each client gets, (clients, classes).

    Always: columns sum to `sizes` (an exact partition), and no client has more than `per_client` classes.
    Clients differ in size by at most one whenever per_client >= 2 and clients * (per_client - 1) >= classes -
    1, and otherwise where the shards allow it (one class a client: only where the class sizes divide). Where
    the shards can be levelled each client has exactly `per_client` classes, if it has that many samples;
    where only another choice of classes can be, some clients have fewer.
    """
    classes = len(sizes)
    if per_client > classes:
        raise UserError(f"split 'pathological:{per_client}': C is larger than the number of classes, {classes}")
    if clients * per_client < classes:
        raise UserError(
            f"split 'pathological:{per_client}': {clients} clients with {per_client} classes each cannot "
            f"hold all {classes} classes; at least {-(-classes // per_client)} clients are needed"
        )
    held = _deal_classes(_shards(sizes, clients, per_client), clients, per_client, rng)
    counts = _cut(sizes, held, rng)
    level = levelled(counts, held, keep=1)
    if level is None:
        level = levelled(counts, held, keep=0)
    if level is None:
        packed = _pack(sizes, clients, per_client)
        if packed is not None:
            level = levelled(_cut(sizes, packed, rng), packed, keep=0)
    # Who was served first must not show in the ids.
    return rng.permutation(counts if level is None else level)


def _shards(sizes: Counts, clients: int, per_client: int) -> Counts:
    """Into how many shards each class is cut: clients * per_client in all, as equal as may be.

    The next cut goes to the class whose shards are largest (the divisor method of Adams), and no class gets
    more shards than there are clients, so that each client can hold different classes.
    """
    shards = np.ones(len(sizes), dtype=np.int64)
    largest = [(-float(size), label) for label, size in enumerate(sizes) if clients > 1]
    heapq.heapify(largest)
    for _ in range(clients * per_client - len(sizes)):
        label = heapq.heappop(largest)[1]
        shards[label] += 1
        if shards[label] < clients:
            heapq.heappush(largest, (-float(sizes[label] / shards[label]), label))
    return shards


def _deal_classes(shards: Counts, clients: int, per_client: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which client holds which class, (clients, classes): `per_client` a client, `shards` holders a class.

    Each client in turn draws its classes with chances in proportion to the shards that are left (Gumbel's
    trick), but takes those first that all the remaining clients are needed for.
    """
    held = np.zeros((clients, len(shards)), dtype=np.bool_)
    left = shards.copy()
    for client in range(clients):
        with np.errstate(divide="ignore"):
            preference = np.log(left) + rng.gumbel(size=len(left))  # -inf where no shard is left
        preference[left == clients - client] = np.inf
        chosen = np.argsort(-preference)[:per_client]
        held[client, chosen] = True
        left[chosen] -= 1
    return held


def _cut(sizes: Counts, held: NDArray[np.bool_], rng: np.random.Generator) -> Counts:
    """Each class in shares that differ by at most one over the clients that hold it."""
    counts = np.zeros(held.shape, dtype=np.int64)
    for label, size in enumerate(sizes):
        holders = rng.permutation(np.flatnonzero(held[:, label]))
        counts[holders, label] = size // len(holders)
        counts[holders[: size % len(holders)], label] += 1
    return counts


def _pack(sizes: Counts, clients: int, per_client: int) -> NDArray[np.bool_] | None:
    """A choice of classes that can be levelled, found by filling equal clients one by one, or None.

    With the classes sorted by what is left of them, take the first window of at most `per_client` neighbours
    that fills a client: all but its last class are used up. If clients * (per_client - 1) >= classes - 1
    holds, it holds again for the rest (a window of C that is first to suffice uses up C - 1 classes, and a
    shorter one that suffices at the bottom means that classes are large), and then such a window exists: the
    C largest classes have at least C / classes of everything, which is one client's share or more. This is
    the alias method of Walker for C = 2.
    """
    # In units of 1 / clients of a sample, so that every client's share is a whole number.
    left = [int(size) * clients for size in sizes]
    share = int(sizes.sum())
    held = np.zeros((clients, len(sizes)), dtype=np.bool_)
    for client in range(clients):
        ascending = sorted((label for label, units in enumerate(left) if units), key=left.__getitem__)
        window = _first_window(ascending, left, share, per_client)
        if window is None:
            return None
        held[client, window] = True
        room = share
        for label in window:
            taken = min(room, left[label])
            left[label] -= taken
            room -= taken
    return held


def _first_window(ascending: list[int], left: list[int], share: int, most: int) -> list[int] | None:
    """The first neighbours, at most `most`, that have a client's share together; as few as suffice."""
    for start in range(max(1, len(ascending) - most + 1)):
        window, total = [], 0
        for label in ascending[start : start + most]:
            window.append(label)
            total += left[label]
            if total >= share:
                return window
    return None
