"""The ray engine: the clients of a round are trained on a Ray cluster, with the bits of the serial engine.

The broadcast goes to each node once, through Ray's object store. Each node sums the uploads of consecutive clients. The
sum then passes from node to node, each adding its part, so the server receives one sum, no matter how many clients
there are. What clients keep between rounds stays on the node that trained them, with a copy on a second node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from fedmim.algorithms import Algorithm, Vectors
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.client_state import ClientState, KeptVectors
from fedmim.simulation.mean import StreamingMean
from fedmim.simulation.packing import Packed, pack_value, unpack
from fedmim.simulation.ray_actors import RunContent
from fedmim.simulation.ray_pool import RayPool
from fedmim.simulation.ray_round import RayRound, RoundPart, parts_of
from fedmim.simulation.server import Outcome, weight_of
from fedmim.simulation.settings import Execution
from fedmim.simulation.training import Reply, Work, on
from fedmim.simulation.wire import Wire

_NUMBERS = count()  # of the runs of this program


class RayEngine:
    """The engine of one run."""

    def __init__(self, algorithm: Algorithm, model: FlatModel, execution: Execution) -> None:
        Wire.of(algorithm, model.params)  # check the method
        self._device = execution.device
        self._pool = RayPool.of(execution.ray, execution.workers, execution.gpus_per_worker)
        self._number = next(_NUMBERS)
        self._content: Any = None  # reference to the run in the object store

    def __call__(self, algorithm: Algorithm, model: FlatModel, work: Work) -> Iterator[Reply]:
        """Train a round's clients; yields replies in the order of the clients."""
        device = model.params.device
        with self._ending():
            training = self._round(algorithm, work, {}, [RoundPart(0, len(work.clients), None)])
            for position, client in enumerate(work.clients):
                result, packed = training.fetch(position)
                upload, slots = unpack(packed, copy=True), result.slots
                kept = {} if slots is None else slots.load()
                buffers, trained = upload.pop("buffers").to(device), result.trained
                yield Reply(client, on(device, upload), on(device, kept), buffers, trained.loss, trained.steps)

    def aggregate(
        self, algorithm: Algorithm, work: Work, reference: Vectors, sizes: Mapping[int, int], clients: ClientState
    ) -> tuple[StreamingMean, list[Outcome]]:
        """Train a round's clients and sum their uploads on the nodes."""
        with self._ending():
            self._pool.ready(len(work.clients))
            parts = parts_of([sizes[client] for client in work.clients], self._pool.nodes)
            training = self._round(algorithm, work, reference, parts, clients)
            mean = training.mean([weight_of(work.settings, sizes[client]) for client in work.clients])
            outcomes = []
            for position, client in enumerate(work.clients):
                result = training.results[position]
                trained = result.trained
                kept: KeptVectors = {} if result.slots is None else result.slots
                outcomes.append(Outcome(client, trained.accepted, trained.loss, trained.bytes_up, kept))
            return mean, outcomes

    def _round(
        self,
        algorithm: Algorithm,
        work: Work,
        reference: Vectors,
        parts: list[RoundPart],
        clients: ClientState | None = None,
    ) -> RayRound:
        ray = self._pool.ray
        self._pool.ready(len(work.clients))
        if self._content is None:
            run = RunContent(algorithm, work.task, work.settings, self._device)
            self._content = ray.put(packed_run(run))
        here = [{name: vector.cpu() for name, vector in each.items()} for each in (work.down, reference)]
        content = ray.put(pack_value((here[0], work.buffers.cpu(), here[1])))
        return RayRound(self._pool, (self._number, [self._content]), content, work, parts, clients)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End the actors if a round is interrupted, since they would go on with it."""
        try:
            yield
        except BaseException:
            self._pool.close()
            raise


def packed_run(run: RunContent) -> Packed:
    """The run for the nodes."""
    try:
        return pack_value(run)
    except Exception as error:  # a user's model, data or method can fail in any way
        raise UserError(
            f"engine: the run cannot be sent to other machines ({error}); use processes or serial"
        ) from error
