"""One round on a Ray cluster: hands out clients, sums their uploads in parts, and redoes what is lost with a node."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Any

from fedmim.algorithms import Vectors
from fedmim.errors import UserError
from fedmim.simulation.client_state import ClientState, Elsewhere
from fedmim.simulation.mean import StreamingMean
from fedmim.simulation.messages import WorkerFailure
from fedmim.simulation.packing import Packed, pack_value, unpack
from fedmim.simulation.processes import ATTEMPTS
from fedmim.simulation.ray_actors import ClientJob, Trained
from fedmim.simulation.ray_pool import RayNode, RayPool, RayWorker
from fedmim.simulation.training import Work

WAIT = 2.0  # seconds to wait for results before looking at the cluster again

_PARTS = count()  # numbers of the parts of this program


class RemoteVectors(Elsewhere):
    """A client's vectors in Ray's object store: references to copies on different nodes."""

    def __init__(self, *copies: Any) -> None:
        self.copies = list(copies)

    def load(self) -> Vectors:
        """Fetch the vectors from the first node that still has them."""
        import ray
        from ray.exceptions import RayError

        while True:
            try:
                vectors: Vectors = unpack(ray.get(self.copies[0]), copy=True)
            except RayError as error:
                self.lose_first(error)
            else:
                return vectors

    def lose_first(self, error: Exception) -> None:
        """Use the next copy, since the first is lost."""
        if len(self.copies) < 2:
            raise UserError(
                "ray: what a client keeps between rounds was lost with its node; resume the run from its last "
                "checkpoint with --resume"
            ) from error
        del self.copies[0]


@dataclass(eq=False)
class RoundPart:
    """Consecutive clients of a round, whose uploads are summed on one node; None: the server gets the uploads."""

    start: int
    stop: int
    node: RayNode | None
    number: int = field(default_factory=lambda: next(_PARTS))
    attempts: int = 1
    added: int = 0  # clients that were sent to the adder
    acknowledged: list[Any] = field(default_factory=list)  # references to the ends of these additions


def parts_of(sizes: Sequence[int], nodes: Sequence[RayNode]) -> list[RoundPart]:
    """Split the clients of a round, with these numbers of samples, over the nodes in proportion to their workers."""
    work = list(accumulate(sizes))
    shares = list(accumulate(len(node.trainers) for node in nodes))
    stops = [sum(each * shares[-1] <= work[-1] * share for each in work) for share in shares]
    return [
        RoundPart(start, stop, node)
        for start, stop, node in zip([0, *stops], stops, nodes, strict=False)
        if start < stop
    ]


@dataclass(eq=False)
class TrainedClient:
    """A trained client. Its upload is in the object store until it has been added or fetched."""

    trained: Trained
    node: RayNode
    upload: Any
    slots: RemoteVectors | None


class RayRound:
    """The clients of a round in training."""

    def __init__(
        self,
        pool: RayPool,
        run: tuple[int, list[Any]],
        content: Any,
        work: Work,
        parts: list[RoundPart],
        clients: ClientState | None,
    ) -> None:
        self._pool, self._run, self._content, self._work = pool, run, content, work
        self._clients, self._parts = clients, parts
        self.results: dict[int, TrainedClient] = {}  # by position in the round
        self._waiting: dict[RoundPart, deque[int]] = {part: deque(range(part.start, part.stop)) for part in parts}
        self._slots: dict[int, RemoteVectors | None] = {}  # what clients start with
        self._attempts: Counter[int] = Counter()
        for worker in pool.workers:
            worker.sent.clear()  # of a round in which nodes were lost

    def fetch(self, position: int) -> tuple[TrainedClient, Packed]:
        """Wait for a client and fetch its upload."""
        from ray.exceptions import RayError

        while True:
            while position not in self.results:
                self._step()
            result = self.results[position]
            try:
                upload: Packed = self._pool.ray.get(result.upload)
            except RayError:
                self._again(position)
            else:
                result.upload = None
                return result, upload

    def mean(self, weights: Sequence[float]) -> StreamingMean:
        """Train all clients and sum their uploads; the mean, with the same bits for any parts."""
        from ray.exceptions import RayError

        while True:
            while any(part.added < part.stop - part.start for part in self._parts):
                self._step()
                self._add(weights)
            before = None
            for part in self._parts:
                assert part.node is not None
                before = part.node.adder.fold.remote(part.number, part.stop - part.start, self._content, before)
            try:
                mean: StreamingMean = unpack(self._pool.ray.get(before), copy=True)
            except RayError:
                self._find_lost_parts()
            else:
                return mean

    def _add(self, weights: Sequence[float]) -> None:
        """Send the uploads of each part to its adder, in order. Start parts again whose adder or uploads are lost."""
        from ray.exceptions import RayActorError, RayError

        for part in self._parts:
            assert part.node is not None
            try:
                ended, part.acknowledged = (
                    self._pool.ray.wait(part.acknowledged, num_returns=len(part.acknowledged), timeout=0)
                    if part.acknowledged
                    else ([], [])
                )
                self._pool.ray.get(ended)
            except RayActorError:
                self._lose_node(part.node)
            except RayError:  # an upload is lost
                self._restart(part)
            while (position := part.start + part.added) < part.stop and position in self.results:
                self._add_one(part, position, weights[position])

    def _add_one(self, part: RoundPart, position: int, weight: float) -> None:
        assert part.node is not None
        result = self.results[position]
        upload = result.upload if result.trained.accepted else None
        number = self._work.round
        end = part.node.adder.add.remote(number, part.number, part.start, weight, self._content, upload)
        result.upload = None  # freed when it has been added
        part.acknowledged.append(end)
        part.added += 1

    def _find_lost_parts(self) -> None:
        """After a failure: find the parts whose sums are lost."""
        lost = [node for node in {part.node for part in self._parts} if node and not self._pool.is_alive(node)]
        for node in lost:
            self._lose_node(node)
        for part in self._parts if not lost else ():  # a sum was lost on its way
            self._restart(part)

    def _lose_node(self, node: RayNode) -> None:
        """Redo what is lost with a node: its clients in training, the uploads that it holds, and its parts."""
        if node not in self._pool.nodes:
            return
        self._pool.lose_node(node)
        in_training = [position for worker in node.trainers for position, _, _ in worker.sent.values()]
        for worker in node.trainers:
            worker.sent.clear()
        held = [at for at, result in self.results.items() if result.node is node and result.upload is not None]
        for position in (*in_training, *held):
            self._again(position)
        self._pool.ready(len(self._work.clients))
        for part in self._parts:
            if part.node is node:
                part.node = min(self._pool.nodes, key=lambda each: sum(other.node is each for other in self._parts))
                self._restart(part)

    def _restart(self, part: RoundPart) -> None:
        """Sum a part from its start on. Clients whose uploads were added are trained again."""
        part.attempts += 1
        if part.attempts > ATTEMPTS:
            raise UserError(f"ray: the sum of the uploads of round {self._work.round + 1} was lost {ATTEMPTS} times")
        for position in range(part.start, part.start + part.added):
            self._again(position)
        part.number, part.added, part.acknowledged = next(_PARTS), 0, []

    def _again(self, position: int) -> None:
        """Train a client again."""
        self.results.pop(position, None)
        next(waiting for part, waiting in self._waiting.items() if part.start <= position < part.stop).append(position)

    def _step(self) -> None:
        """Hand out waiting clients, and wait until at least one has ended or some seconds have passed."""
        self._hand_out()
        sent = {reference: worker for worker in self._pool.workers for reference in worker.sent}
        if not sent:  # all workers were lost; start others or fail
            self._pool.ready(len(self._work.clients))
            return
        came, rest = self._pool.ray.wait(list(sent), num_returns=1, timeout=WAIT)
        if came and rest:
            came += self._pool.ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        for reference in came:
            self._take(sent[reference], reference)

    def _hand_out(self) -> None:
        """Send clients to the workers: one to each, and a second one while many are waiting."""
        workers = self._pool.workers
        for depth in (1, 2):
            for worker in workers:
                left = sum(map(len, self._waiting.values()))
                if len(worker.sent) < depth and left >= 1 + (depth - 1) * len(workers):
                    self._send(worker, self._next(worker))

    def _next(self, worker: RayWorker) -> int:
        """The next client of the worker's node, else of the part with the most waiting clients."""
        waiting = [(part, positions) for part, positions in self._waiting.items() if positions]
        own = [positions for part, positions in waiting if part.node is worker.node]
        return own[0].popleft() if own else max((positions for _, positions in waiting), key=len).pop()

    def _send(self, worker: RayWorker, position: int) -> None:
        work, client = self._work, self._work.clients[position]
        if position not in self._slots:
            self._slots[position] = self._find_slots(client)
        slots = self._slots[position]
        summed = any(part.node for part in self._parts)
        job = ClientJob(work.round, work.lr, client, work.first(client), not summed, work.steps.get(client, 0))
        start = slots.copies[0] if slots else None
        train = worker.actor.train.options(num_returns=3)
        trained, upload, kept = train.remote(*self._run, self._content, job, start)
        worker.sent[trained] = position, upload, kept

    def _find_slots(self, client: int) -> RemoteVectors | None:
        """What a client starts with; None for zeros or nothing."""
        if self._work.first(client):
            return None
        found = self._clients.find(client) if self._clients else self._work.slots(client)
        if isinstance(found, RemoteVectors):
            return found
        here = {name: vector.cpu() for name, vector in found.items()} if isinstance(found, dict) else found.load()
        return RemoteVectors(self._pool.ray.put(pack_value(here)))

    def _take(self, worker: RayWorker, reference: Any) -> None:
        """Take the result of a client, or train it again if it is lost."""
        from ray.exceptions import ObjectLostError, RayError

        if reference not in worker.sent:  # lost with its node
            return
        position, upload, kept = worker.sent.pop(reference)
        try:
            trained = self._pool.ray.get(reference)
        except ObjectLostError as error:  # of what the client keeps
            if slots := self._slots.get(position):
                slots.lose_first(error)
            self._again(position)
            return
        except RayError as error:
            self._lose(worker, position, error)
            return
        if isinstance(trained, WorkerFailure):
            raise trained.error from RuntimeError(f"on a node of the cluster:\n{trained.text}")
        self.results[position] = TrainedClient(
            trained, worker.node, upload, self._copies(worker, kept) if trained.keeps else None
        )

    def _lose(self, worker: RayWorker, position: int, error: Exception) -> None:
        """Train the clients of a worker that has ended again, unless too many workers ended with the first of them."""
        self._attempts[position] += 1
        if self._attempts[position] >= ATTEMPTS:
            client, round = self._work.clients[position], self._work.round + 1
            raise UserError(
                f"ray: {ATTEMPTS} workers ended while they trained client {client} in round {round}; if memory is "
                "short, lower --workers, otherwise try --engine serial, which shows the error itself"
            ) from error
        self._pool.lose(worker, type(error).__name__)
        for each in (position, *(other for other, _, _ in worker.sent.values())):
            self._again(each)
        worker.sent.clear()
        if not self._pool.is_alive(worker.node):
            self._lose_node(worker.node)

    def _copies(self, worker: RayWorker, kept: Any) -> RemoteVectors:
        """The client's new vectors on the node of its worker, with a copy on another node if there is one."""
        nodes = self._pool.nodes
        if len(nodes) < 2 or worker.node not in nodes:
            return RemoteVectors(kept)
        other = nodes[(nodes.index(worker.node) + 1) % len(nodes)]
        return RemoteVectors(kept, other.adder.keep.remote(kept))
