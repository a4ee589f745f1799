"""Equal clients from unequal ones, each keeping to the classes it holds: a maximum flow of single samples.

A client with too many samples gives one of a class to another holder of that class, who may pass on one of
another class, until it reaches a client with too few. All these paths at once are a flow
    source -> clients above the bound -> classes that they can give -> clients that hold those -> below it ->
    sink.
Flows with whole capacities are whole, so nothing has to be rounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def levelled(counts: Counts, held: NDArray[np.bool_], keep: int) -> Counts | None:
    """Counts with the same column sums and rows that differ by at most one, or None if `held` admits none.

    counts and held are (clients, classes). No client gives away its last `keep` samples of a class.
    """
    low = int(counts.sum()) // len(counts)
    high = low + (counts.sum() % len(counts) > 0)
    # First nobody above `high`, then nobody below `low`. If any solution exists both steps succeed: the
    # difference to it is made of such paths, and each step only moves along those that the other bound
    # allows.
    rows = counts.sum(1)
    fewer = _moved(counts, held, keep, surplus=(rows - high).clip(0), lack=(high - rows).clip(0))
    rows = fewer.sum(1)
    if (rows > high).any():
        return None
    more = _moved(fewer, held, keep, surplus=(rows - low).clip(0), lack=(low - rows).clip(0))
    return None if (more.sum(1) < low).any() else more


def _moved(counts: Counts, held: NDArray[np.bool_], keep: int, surplus: Counts, lack: Counts) -> Counts:
    """The counts after as many samples as possible have moved from surplus to lack, (clients,) each."""
    from scipy.sparse import coo_array, csr_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import maximum_flow  # type: ignore[import-untyped]

    if not surplus.any() or not lack.any():
        return counts
    clients, classes = counts.shape
    source, sink = clients + classes, clients + classes + 1
    holder, label = np.nonzero(held)
    everyone = np.arange(clients)
    # Node numbers: clients, then classes, source, sink. Giving is bounded by what a client has, receiving is
    # not.
    tail = np.concatenate([np.full(clients, source), everyone, holder, clients + label])
    head = np.concatenate([everyone, np.full(clients, sink), clients + label, holder])
    can_give = (counts[holder, label] - keep).clip(0)
    receive = np.full(len(holder), counts.sum())
    capacity = np.concatenate([surplus, lack, can_give, receive]).astype(np.int32)
    size = clients + classes + 2
    # csr_array, and int32 throughout, is what maximum_flow takes.
    network = csr_array(coo_array((capacity, (tail.astype(np.int32), head.astype(np.int32))), shape=(size, size)))
    flow = maximum_flow(network, source, sink).flow.tocoo()
    given = np.zeros_like(counts)
    from_client = (flow.row < clients) & (flow.col >= clients) & (flow.col < source)
    # The flow is antisymmetric, so one direction has it all: positive is given, negative received.
    given[flow.row[from_client], flow.col[from_client] - clients] = flow.data[from_client]
    return counts - given
