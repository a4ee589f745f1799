"""Label skew: how many samples of each class each client gets.

Hsu, Qi and Brown (2019), "Measuring the Effects of Non-Identical Data Distribution"; McMahan et al. (2017).
"""

from __future__ import annotations

import math

from fedmim.data.lazy_arrays import Booleans, Floats, Integers, np
from fedmim.errors import UserError


def dirichlet_counts(sizes: Integers, quotas: Integers, concentration: float, rng: np.random.Generator) -> Integers:
    """The counts (clients, classes) of Hsu, Qi and Brown (2019): each client draws labels from its own prior.

    Client i draws its label prior p_i ~ Dir(U, ..., U), then the labels of its samples from p_i, without replacement:
    when a class runs out, p_i is renormalised over the remaining classes. Columns sum to `sizes` and rows to `quotas`,
    which have the same total. Clients draw in random order, so the last clients, who get what is left, vary.
    """
    priors = _log_priors(len(quotas), len(sizes), concentration, rng)
    left = sizes.copy()
    counts = np.zeros((len(quotas), len(sizes)), dtype=np.int64)
    for client in rng.permutation(len(quotas)):
        missing = quotas[client]
        # Draws beyond the end of a class are drawn again from the others. This has the same distribution as drawing
        # one by one with renormalisation. A pass that leaves any missing has emptied a class, so there are few passes.
        while missing:
            open_classes = np.flatnonzero(left)
            prior = priors[client, open_classes]
            prior = np.exp(prior - prior.max())
            drawn = np.minimum(rng.multinomial(missing, prior / prior.sum()), left[open_classes])
            counts[client, open_classes] += drawn
            left[open_classes] -= drawn
            missing -= drawn.sum()
    return counts


def pathological_counts(sizes: Integers, clients: int, per_client: int, rng: np.random.Generator) -> Integers:
    """The counts (clients, classes) of McMahan et al. (2017): sort by label, cut into shards, deal C to each client.

    Each class is cut into its own shards, so a shard has one class and a client has at most C classes. Columns sum to
    `sizes`, and no row has more than `per_client` entries above 0. Two clients differ in size by at most the difference
    of the largest and the smallest shard. This is at most one sample if all classes have the same size and
    clients * per_client is a multiple of the number of classes; with unequal classes it can be more.
    """
    classes = len(sizes)
    if per_client > classes:
        raise UserError(f"split 'pathological:{per_client}': C must be at most the number of classes, {classes}")
    if clients * per_client < classes:
        raise UserError(
            f"split 'pathological:{per_client}': {clients} clients with {per_client} classes each cannot "
            f"cover all {classes} classes; use at least {-(-classes // per_client)} clients"
        )
    label, size = _shards(sizes, clients, per_client)
    # Deal the shards in turns of one per client: the largest first, equal ones in random order.
    turns = np.lexsort((rng.random(len(size)), -size)).reshape(per_client, clients)
    turns[1::2] = turns[1::2, ::-1]  # whoever got the largest of one turn gets the smallest of the next
    counts = np.zeros((clients, classes), dtype=np.int64)
    everyone = np.arange(clients)
    for shards in turns:
        _swap_repeated_classes(shards, label, counts == 0, rng)
        counts[everyone, label[shards]] += size[shards]
    return rng.permutation(counts)  # so that ids do not depend on the order of dealing


def _swap_repeated_classes(shards: Integers, label: Integers, lacks: Booleans, rng: np.random.Generator) -> None:
    """Let clients that would get a class twice swap shards; `shards` is (clients,), `lacks` (clients, classes).

    Each swaps with a random client to whom both shards' classes are new, if there is one.
    """
    repeats = np.flatnonzero(~lacks[np.arange(len(shards)), label[shards]])
    if not len(repeats):
        return
    partners = _Partners(label[shards], lacks)
    for client in repeats.tolist():
        if count := partners.count(client):
            other = partners.find(client, int(rng.integers(count)))
            shards[[client, other]] = shards[[other, client]]
            partners.swap(client, other)


class _Partners:
    """Who can swap with whom, counted in blocks of clients, so that a search does not go through all clients.

    Client j is a partner of client i if i lacks the class of j's shard and j lacks the class of i's shard.
    """

    def __init__(self, classes: Integers, lacks: Booleans) -> None:
        self.classes, self.lacks = classes, lacks
        self.size = max(
            math.isqrt(len(lacks)), lacks.shape[1]
        )  # clients per block; the table is no larger than `lacks`
        # By block, class of the shard, and class that a client lacks.
        self.table = np.zeros((-(-len(lacks) // self.size), lacks.shape[1], lacks.shape[1]), dtype=np.int32)
        for block, table in enumerate(self.table):
            own = slice(block * self.size, (block + 1) * self.size)
            np.add.at(table, classes[own], lacks[own])

    def _by_block(self, client: int) -> Integers:
        counts: Integers = np.sum(self.table[:, self.lacks[client], self.classes[client]], axis=1, dtype=np.int64)
        return counts

    def count(self, client: int) -> int:
        """The number of partners of a client."""
        return int(self._by_block(client).sum())

    def find(self, client: int, number: int) -> int:
        """The partner of a client with this number, in the order of ids."""
        ends = np.cumsum(self._by_block(client))
        block: int = np.searchsorted(ends, number, side="right").item()
        start: int = block * self.size
        own = slice(start, start + self.size)
        partners = self.lacks[client, self.classes[own]] & self.lacks[own, self.classes[client]]
        before = ends[block - 1] if block else 0
        place: int = np.flatnonzero(partners)[number - before].item()
        return start + place

    def swap(self, one: int, other: int) -> None:
        """Exchange the classes of two clients' shards."""
        self._add([one, other], -1)
        self.classes[[one, other]] = self.classes[[other, one]]
        self._add([one, other], 1)

    def _add(self, clients: list[int], sign: int) -> None:
        for client in clients:
            self.table[client // self.size, self.classes[client]] += sign * self.lacks[client]


def _log_priors(clients: int, classes: int, concentration: float, rng: np.random.Generator) -> Floats:
    """Logarithms of unnormalised draws from Dir(U), (clients, classes).

    Dir(U) is Gamma(U) variables divided by their sum, and Gamma(U) = Gamma(U + 1) * uniform^(1/U). Logarithms do not
    underflow at small U, so even if all classes with mass in a prior have run out, the order of the rest is known.
    """
    # Below 1e-300 the division would overflow; at 1e-300 one class already has all the mass.
    concentration = max(concentration, 1e-300)
    shape = (clients, classes)
    log_gamma = np.log(rng.standard_gamma(concentration + 1, shape))
    return log_gamma - rng.standard_exponential(shape) / concentration


def _shards(sizes: Integers, clients: int, per_client: int) -> tuple[Integers, Integers]:
    """The class and the size of each of clients * per_client shards: 1 to `clients` shards per class.

    The next cut always goes to the class with the largest shards (the Adams divisor method).
    """
    size_after_cuts = sizes / np.arange(1, clients)[:, None]  # (clients - 1, classes)
    order = np.argsort(-size_after_cuts, axis=None, kind="stable") % len(sizes)
    shards = 1 + np.bincount(order[: clients * per_client - len(sizes)], minlength=len(sizes))
    label = np.repeat(np.arange(len(sizes)), shards)
    number = np.arange(len(label)) - np.repeat(np.cumsum(shards) - shards, shards)  # index of a shard within its class
    return label, sizes[label] // shards[label] + (number < sizes[label] % shards[label])
