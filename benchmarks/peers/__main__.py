"""Seconds per round of each peer, `python -m benchmarks.peers W3`, or of some, `python -m benchmarks.peers W3 pfl`.

For a quick look; use `python -m benchmarks` for comparisons, where all take turns.
"""

from __future__ import annotations

import statistics
import sys
import time

from benchmarks.peers import PEERS, Peer
from benchmarks.workloads import WORKLOADS

WARM_UP = {"W1": 1, "W2": 1, "W3": 20}
ROUNDS = {"W1": 5, "W2": 3, "W3": 50}


def main(workload: str, names: list[str]) -> None:
    """Time the named peers, or all, one after another."""
    for name in names or list(PEERS):
        begin = time.perf_counter()
        peer = Peer(WORKLOADS[workload], name)
        for _ in range(WARM_UP[workload]):
            peer()
        ready = time.perf_counter() - begin
        seconds = []
        for _ in range(ROUNDS[workload]):
            begin = time.perf_counter()
            peer()
            seconds.append(time.perf_counter() - begin)
        peer.close()
        times = f"median {statistics.median(seconds):.4g} s per round, best {min(seconds):.4g}"
        print(f"{PEERS[name].title}: {times}; ready after {ready:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
