"""The ray engine on a test cluster with nodes of one CPU: its overhead, the driver's traffic, and large clusters.

The nodes are processes on this machine, so the network is not measured. Rounds of the ray engine on two nodes take
turns with rounds of the processes engine with two workers. The times for large clusters are calculated, from the times
measured here and an assumed network.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest import mock

import cloudpickle
import torch

import fedmim
from benchmarks.load import head, row
from benchmarks.workloads import WORKLOADS, Workload
from fedmim.simulation.mean import BLOCK, StreamingMean, SumBlock
from fedmim.simulation.packing import Packed, pack_value
from fedmim.simulation.ray_actors import RayAdder
from fedmim.simulation.ray_cluster import import_ray

ROUNDS = {"W1": 20, "W2": 5}  # of each engine
WARM = 2  # rounds before timing starts
CLIENTS = 20  # half of them per round
STORE = 1 << 30  # bytes of each node's object store
SELECTED = (10, 32, 40, 64)  # clients per round for the traffic
NODES, CORES, NETWORK = 16, 64, 1.25e9  # the large cluster; bytes per second of a network of 10 Gbit/s
PAPER = {"rounds": 1000, "epochs": 5, "clients": 10}  # the paper's Table I: ResNet-18, 500 samples per client
GRADIENTS = (1, 1, 1, 1, 1, 2, 1)  # per step of its seven methods; FedSAM takes two
REPETITIONS = 9  # three splits, three seeds
MANY = 1000  # clients per round on the large cluster


class LocalCluster:
    """A Ray cluster that grows, with one CPU per node. It listens on 127.0.0.1 only."""

    def __init__(self) -> None:
        self.ray = import_ray(local=True)
        from ray.cluster_utils import Cluster

        self._options = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": STORE}
        self._cluster = Cluster(initialize_head=True, head_node_args=self._options | {"include_dashboard": False})

    @property
    def address(self) -> str:
        """HOST:PORT of the head node."""
        return str(self._cluster.address)

    def add_node(self) -> None:
        """Add a node and wait for it."""
        self._cluster.add_node(**self._options)
        self._cluster.wait_for_nodes()

    def close(self) -> None:
        """End all nodes."""
        self.ray.shutdown()
        self._cluster.shutdown()


@dataclass
class Traffic:
    """What the driver puts into the object store and gets from it, in bytes."""

    put: int = 0
    got: int = 0

    @contextmanager
    def counted(self, ray: Any) -> Iterator[None]:
        """Count in this block."""
        put, get = ray.put, ray.get

        def counting_put(value: Any, *args: Any, **kwargs: Any) -> Any:
            self.put += size(value)
            return put(value, *args, **kwargs)

        def counting_get(*args: Any, **kwargs: Any) -> Any:
            value = get(*args, **kwargs)
            self.got += size(value)
            return value

        with mock.patch.object(ray, "put", counting_put), mock.patch.object(ray, "get", counting_get):
            yield


def size(value: Any) -> int:
    """The bytes of a value in the object store."""
    return value.nbytes if isinstance(value, Packed) else len(cloudpickle.dumps(value))


def traffic(cluster: LocalCluster) -> tuple[float, ...]:
    """The megabytes that the driver puts and gets per round, for each number of clients per round."""
    workload, found = WORKLOADS["W1"], list[float]()
    for selected in SELECTED:
        task = workload.task(clients=max(SELECTED), samples=workload.batch)
        settings = replace(workload.protocol("ray")[0], participation=selected / max(SELECTED))
        run = fedmim.rounds(fedmim.FedAvg(), task, settings, fedmim.Execution("ray", ray=cluster.address))
        next(run)  # sends the data
        counts = Traffic()
        with counts.counted(cluster.ray):
            next(run)
        found += [counts.put / 1e6, counts.got / 1e6]
    return tuple(found)


@dataclass
class Sides:
    """Seconds of rounds that take turns: on the cluster, and with worker processes."""

    ray: list[float] = field(default_factory=list)
    processes: list[float] = field(default_factory=list)

    @property
    def client(self) -> float:
        """Seconds that a core trains one client: two cores, half of the clients per round."""
        return 2 * statistics.median(self.processes) / (CLIENTS / 2)

    def cells(self) -> tuple[float | str, ...]:
        """Rounds per second of both, and the overhead with its quartiles."""
        overhead = [100 * (ours / base - 1) for ours, base in zip(self.ray, self.processes, strict=True)]
        low, middle, high = statistics.quantiles(overhead, n=4)
        speeds = (1 / statistics.median(self.ray), 1 / statistics.median(self.processes))
        return *speeds, f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


def compare(workload: Workload, cluster: LocalCluster, rounds: int) -> Sides:
    """Rounds of both engines in turn. Both must give the same bits."""
    task, settings = workload.task(clients=CLIENTS), replace(workload.protocol("ray")[0], participation=0.5)
    runs = {
        "ray": fedmim.rounds(fedmim.FedAvg(), task, settings, fedmim.Execution("ray", ray=cluster.address)),
        "processes": fedmim.rounds(fedmim.FedAvg(), task, settings, fedmim.Execution("processes", workers=2)),
    }
    sides = Sides()
    for number in range(WARM + rounds):
        for name, run in runs.items():
            begin = time.perf_counter()
            next(run)
            if number >= WARM:
                getattr(sides, name).append(time.perf_counter() - begin)
    if not torch.equal(runs["ray"].params, runs["processes"].params):
        raise AssertionError("the engines do not agree")
    return sides


@dataclass(frozen=True)
class Sums:
    """Seconds of a node's adder, and the size of the model."""

    add: float  # to add an upload
    hop: float  # to continue the sum of the nodes before, with 8 clients of an open block; without whole blocks
    block: float  # to add a block of 16 clients to that sum
    model: int  # bytes

    @classmethod
    def of(cls, workload: Workload) -> Sums:
        """Measure them in this process, without Ray."""
        vector = torch.cat([each.detach().flatten() for each in workload.module().parameters()])
        content, upload = pack_value(({}, torch.empty(0), {"params": vector})), pack_value({"params": vector + 1})
        adder, add, block = RayAdder(), list[float](), SumBlock()
        for part, start in enumerate((0, 24)):
            call = partial(adder.add, 0, part, start, 1.0, content, upload)
            add += [seconds(call) for _ in range(24)]
        before = adder.fold(0, 24, content, None)
        for _ in range(BLOCK):
            block.add(1.0, {"params": vector}, {})
        append = median_seconds(partial(StreamingMean({}).append, block))
        fold = median_seconds(partial(adder.fold, 1, 24, content, before))
        return cls(statistics.median(add), fold - append, append, 4 * len(vector))

    def round(self, nodes: int, cores: int, clients: int, client: float) -> float:
        """Seconds of a round, with the model of docs/cluster.md."""
        each = math.ceil(clients / nodes)  # clients per node
        broadcast = (nodes - 1) * self.model / NETWORK
        chain = nodes * (self.hop + 4 * self.model / NETWORK) + clients / BLOCK * self.block
        return broadcast + max(math.ceil(each / cores) * client, each * self.add) + chain


def median_seconds(work: Callable[[], object]) -> float:
    """The median of five calls."""
    return statistics.median(seconds(work) for _ in range(5))


def seconds(work: Callable[[], object]) -> float:
    """Seconds of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def on_paper(client: float, sums: Sums) -> list[str]:
    """The times of a large cluster."""
    unit = PAPER["rounds"] * PAPER["epochs"] * PAPER["clients"] * client / 3600  # hours of a run on one core
    runs = [unit * gradients for gradients in GRADIENTS for _ in range(REPETITIONS)]
    lines = [
        f"Calculated for nodes of {CORES} cores with the speed of this machine's and a network of "
        f"{8 * NETWORK / 1e9:g} Gbit/s, from seconds measured here: {client:.3g} to train a client (one epoch), "
        f"{sums.add:.3g} to add an upload, {sums.hop:.3g} for a node to continue the sum, {sums.block:.3g} per "
        f"{BLOCK} clients. Nothing in this table was measured on such a cluster.",
        "",
        *head("on paper", "one core", *(f"{nodes} x {CORES} cores" for nodes in (1, 4, NODES))),
        row(
            f"the {len(runs)} runs of the paper's Table I on CIFAR-10, one per core: hours",
            *(f"{hours(runs, cores):,.0f}" for cores in (1, CORES, 4 * CORES, NODES * CORES)),
        ),
    ]
    each = {nodes: sums.round(nodes, CORES, MANY, client) for nodes in (1, 4, NODES)}
    lines.append(
        row(f"a round of {MANY} clients with ResNet-18, one epoch: seconds", MANY * client, *map(float, each.values()))
    )
    return lines


def hours(runs: list[float], cores: int) -> float:
    """The time until all runs have ended, longest first, each on the core that is free first."""
    busy = [0.0] * min(cores, len(runs))
    for each in sorted(runs, reverse=True):
        first = busy.index(min(busy))
        busy[first] += each
    return max(busy)


def table(rounds: dict[str, int] = ROUNDS) -> str:
    """All parts as Markdown."""
    cluster = LocalCluster()
    driver, sides = dict[int, tuple[float, ...]](), dict[str, Sides]()
    try:
        driver[1] = traffic(cluster)
        cluster.add_node()
        for name, count in rounds.items():
            sides[name] = compare(WORKLOADS[name], cluster, count)
        driver[2] = traffic(cluster)
        cluster.add_node()
        driver[3] = traffic(cluster)
    finally:
        cluster.close()
    lines = head("2 nodes of one CPU", "ray, rounds/s", "processes, 2 workers", "overhead, median (quartiles)")
    for name, each in sides.items():
        lines.append(row(WORKLOADS[name].model, *each.cells()))
    titles = [f"S = {selected}: {what}" for selected in SELECTED for what in ("put", "got")]
    lines += ["", *head("the driver's MB per round, lenet", *titles)]
    lines += [row(f"{nodes} node{'s' * (nodes > 1)}", *cells) for nodes, cells in driver.items()]
    lines += ["", *on_paper(sides["W2"].client, Sums.of(WORKLOADS["W2"]))]
    return "\n".join(lines)
