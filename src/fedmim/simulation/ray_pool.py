"""The actors of the ray engine in a cluster, shared by all runs of this program, and replaced when a node is lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from fedmim.errors import UserError, warn_user
from fedmim.simulation.ray_actors import About, RayAdder, RayTrainer, versions
from fedmim.simulation.ray_cluster import connect, free_slots, slots, worker_options

ANSWER = 60.0  # seconds for an adder to answer
START = 120.0  # seconds for an actor to start: it imports PyTorch, perhaps from a shared disk


@dataclass(eq=False)
class RayNode:
    """A node of the cluster on which clients are trained."""

    id: str
    host: str
    adder: Any
    trainers: list[RayWorker] = field(default_factory=list)


@dataclass(eq=False)
class RayWorker:
    """A trainer, and the clients that it was sent: reference to the result -> position, upload, slots."""

    actor: Any
    node: RayNode
    sent: dict[Any, tuple[int, Any, Any]] = field(default_factory=dict)


class RayPool:
    """The actors. `nodes` are those on which a trainer and the adder are alive, as far as is known."""

    _pool: RayPool | None = None

    def __init__(self, ray: ModuleType, asked: int | None, gpus: float) -> None:
        self.ray, self.asked, self.gpus = ray, asked, gpus
        self.nodes: list[RayNode] = []

    @classmethod
    def of(cls, address: str | None, workers: int | None, gpus: float) -> RayPool:
        """The pool of this program, connected to the cluster. Another number of workers replaces it."""
        ray = connect(address, workers)
        pool = cls._pool
        if pool is None or (pool.asked, pool.gpus) != (workers, gpus):
            if pool is not None:
                pool.close()
            cls._pool = pool = cls(ray, workers, gpus)
        return pool

    @property
    def workers(self) -> list[RayWorker]:
        """All trainers."""
        return [worker for node in self.nodes for worker in node.trainers]

    def ready(self, most: int) -> None:
        """Prepare for clients, this many per round: start trainers where there is room, if some are missing."""
        wanted = min(self.asked or max(1, slots(self.ray, self.gpus)), most)
        missing = wanted - len(self.workers)
        if missing > 0 and (not self.nodes or slots(self.ray, self.gpus, free=True)):
            self._start(missing)
        if not self.nodes:
            raise UserError("ray: no node of the cluster could start a worker; see `ray status` and the logs of Ray")

    def _start(self, count: int) -> None:
        """Start up to this many trainers; those that have no room are given up."""
        ray = self.ray
        count = min(count, free_slots(ray, self.gpus, min(count, self.asked or count) if not self.nodes else None))
        kind = ray.remote(RayTrainer).options(**worker_options(self.gpus))
        actors = [kind.remote() for _ in range(count)]
        asked = {actor.about.remote(): actor for actor in actors}
        started, late = ray.wait(list(asked), num_returns=len(asked), timeout=START)
        for reference in late:
            ray.kill(asked[reference])
        for reference in started:
            self._add(asked[reference], self._about(reference))

    def _about(self, reference: Any) -> About:
        from ray.exceptions import RayError

        try:
            about: About = self.ray.get(reference)
        except RayError as error:
            lines = [line for line in str(error).strip().splitlines() if line.strip()]
            raise UserError(
                f"ray: a worker cannot start ({lines[-1].strip() if lines else type(error).__name__}); install the "
                "same version of fedmim on every node"
            ) from error
        if about.versions != versions():
            theirs, ours = (f"fedmim {v[0]} and torch {v[1]}" for v in (about.versions, versions()))
            raise UserError(f"ray: {about.host} has {theirs}, this machine {ours}; install the same on every node")
        return about

    def _add(self, actor: Any, about: About) -> None:
        node = next((node for node in self.nodes if node.id == about.node), None)
        if node is None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            here = NodeAffinitySchedulingStrategy(about.node, soft=False)
            adder = self.ray.remote(RayAdder).options(num_cpus=0, scheduling_strategy=here).remote()
            node = RayNode(about.node, about.host, adder)
            self.nodes.append(node)
        node.trainers.append(RayWorker(actor, node))

    def lose(self, worker: RayWorker, why: str) -> None:
        """Give up a trainer that has ended."""
        warn_user(f"ray: a worker on {worker.node.host} ended ({why}); its client is trained again elsewhere")
        worker.node.trainers.remove(worker)

    def is_alive(self, node: RayNode) -> bool:
        """Whether a node is part of the cluster and its adder answers."""
        from ray.exceptions import GetTimeoutError, RayError

        answer, deadline = node.adder.has.remote(-1), time.monotonic() + ANSWER
        while time.monotonic() < deadline:
            if node.id not in {each["NodeID"] for each in self.ray.nodes() if each["Alive"]}:
                return False
            try:
                self.ray.get(answer, timeout=0.5)
            except GetTimeoutError:
                continue
            except RayError:
                return False
            return True
        return False

    def lose_node(self, node: RayNode) -> None:
        """Give up a node."""
        warn_user(f"ray: lost a node on {node.host}; its clients are trained again elsewhere")
        self.nodes.remove(node)
        for actor in (node.adder, *(worker.actor for worker in node.trainers)):
            self.ray.kill(actor)

    def close(self) -> None:
        """End all actors; the next round starts new ones."""
        nodes, self.nodes = self.nodes, []
        if self.ray.is_initialized():
            for node in nodes:
                for actor in (node.adder, *(worker.actor for worker in node.trainers)):
                    self.ray.kill(actor)
