"""Ray clusters of several nodes on this machine, with one CPU each, reachable from this machine alone."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LOCAL = {"node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20}


@contextmanager
def ray_cluster(nodes: int) -> Iterator:
    """A cluster. The head node has no CPU, so that any node that trains can be removed."""
    from fedmim.simulation.ray_cluster import import_ray

    ray = import_ray(local=True)
    from ray.cluster_utils import Cluster

    before = signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, of files that it leaves open
        cluster = Cluster(initialize_head=True, head_node_args={**LOCAL, "num_cpus": 0, "include_dashboard": False})
        signal.signal(signal.SIGTERM, before)  # which Ray has replaced
        try:
            for _ in range(nodes):
                add_a_node(cluster)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            signal.signal(signal.SIGTERM, before)


def remove_a_node(cluster) -> None:
    """Lose a node at once, as when its machine fails."""
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


def add_a_node(cluster) -> None:
    """Add a node with one CPU."""
    before = signal.getsignal(signal.SIGTERM)
    cluster.add_node(**LOCAL, num_cpus=1)
    signal.signal(signal.SIGTERM, before)
