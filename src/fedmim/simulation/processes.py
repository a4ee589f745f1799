"""The processes engine: one single-threaded process per core, started once for all runs of this program.

The data set and the vectors of a round are in shared memory. A job is a client's id, and the upload is written to
shared memory, so no vectors are pickled. Each worker trains with the serial engine, so results are bit-identical to
it, no matter which worker trains a client and how often it is retried.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, Vectors
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.messages import Job, SetUp, WorkerFailure
from fedmim.simulation.pool import Lost, Pool, SharedRun
from fedmim.simulation.shared import SharedLayout
from fedmim.simulation.training import Reply, Work, on
from fedmim.simulation.wire import Wire

ATTEMPTS = 3  # per client whose worker dies or hangs

_NUMBERS = count()  # numbers of the runs of this program
_ENDED: set[int] = set()


@dataclass(frozen=True)
class Place:
    """One client's vectors in shared memory."""

    upload: Vectors
    slots: Vectors
    buffers: Tensor


class SharedVectors:
    """The vectors that the server and its workers share in a run."""

    def __init__(self, wire: Wire, vectors: Tensor, buffers: Tensor) -> None:
        self.buffers, *own = buffers  # (1 + places, b)
        parts = iter(vectors.split(sizes_in_order(wire, len(own))))
        self.down: Vectors = {name: next(parts) for name in wire.broadcast}
        self.places = [
            Place({name: next(parts) for name in wire.upload}, {name: next(parts) for name in wire.slots}, each)
            for each in own
        ]

    def place(self, position: int) -> Place:
        """The place of the client at this position of a round; places are reused in turn."""
        return self.places[position % len(self.places)]


class ProcessEngine:
    """The engine of one run: shares its data with the workers and trains its rounds on them."""

    def __init__(self, algorithm: Algorithm, model: FlatModel, device: str, workers: int) -> None:
        self._device, self._workers = device, workers
        self._wire = Wire.of(algorithm, model.params)
        self._shared: tuple[SharedRun, SharedVectors] | None = None

    def __call__(self, algorithm: Algorithm, model: FlatModel, work: Work) -> Iterator[Reply]:
        """Train a round's clients; yields replies in the order of the clients, each valid until the next one."""
        pool = Pool.of(self._workers)
        pool.ready(_ENDED)
        self._shared = self._shared or self._share(algorithm, model, work)
        run, shared = self._shared
        for name, vector in work.down.items():
            shared.down[name].copy_(vector)
        shared.buffers.copy_(work.buffers)
        training, device = _Round(pool, run, shared, work), model.params.device
        for position, client in enumerate(work.clients):
            (loss, steps), place = training.end(position), shared.place(position)
            upload, slots = on(device, place.upload), on(device, place.slots)
            yield Reply(client, upload, slots, place.buffers.to(device), loss, steps)
        if work.round + 1 == work.settings.rounds:  # the last round: free the memory in all processes
            self._shared = None
            pool.drain()  # a worker may still be setting the run up
            pool.forget({run.set_up.run})

    def _share(self, algorithm: Algorithm, model: FlatModel, work: Work) -> tuple[SharedRun, SharedVectors]:
        """Put what the workers need into shared memory."""
        places = 2 * self._workers
        layout, number = SharedLayout(), next(_NUMBERS)
        spans = (
            layout.zeros((sum(sizes_in_order(self._wire, places)),), model.params.dtype),
            layout.zeros((1 + places, len(work.buffers)), torch.float64),
            layout.zeros((self._workers,), torch.int64),
        )
        memory, content = layout.share((algorithm, work.task, work.settings, self._device, self._wire, spans))
        vectors, buffers, gradients = map(memory.tensor, spans)
        run = SharedRun(memory, SetUp(number, content), gradients)
        weakref.finalize(run, _ENDED.add, number)
        return run, SharedVectors(self._wire, vectors, buffers)


class _Round:
    """A round in progress: the waiting clients, and the losses and numbers of steps of the finished ones."""

    def __init__(self, pool: Pool, run: SharedRun, shared: SharedVectors, work: Work) -> None:
        self._pool, self._run, self._shared, self._work = pool, run, shared, work
        self._waiting = deque(enumerate(work.clients))
        self._ended: dict[int, tuple[float, float]] = {}  # by position
        self._lost: Counter[int | None] = Counter()  # number of lost workers, by client

    def end(self, position: int) -> tuple[float, float]:
        """Wait for the client at this position; return its loss and K. Its vectors are then in its place."""
        self._hand_out(position)
        while position not in self._ended:
            for request, answer in self._pool.receive():
                self._take(request, answer)
            self._hand_out(position)
        return self._ended[position]

    def _hand_out(self, position: int) -> None:
        """Send the next clients to idle workers, as long as there are places for their uploads."""
        for worker in self._pool.idle:
            if not self._waiting or self._waiting[0][0] >= position + len(self._shared.places):
                return
            if self._run.set_up.run not in worker.runs:
                self._pool.send(worker, self._run, self._run.set_up)
                continue
            number, client = self._waiting.popleft()
            for name, vector in self._work.slots(client).items():
                self._shared.place(number).slots[name].copy_(vector)
            work = self._work
            first, steps = work.first(client), work.steps.get(client, 0)
            job = Job(self._run.set_up.run, number, work.round, work.lr, client, first, steps)
            self._pool.send(worker, self._run, job)

    def _take(self, request: SetUp | Job, answer: Any) -> None:
        if isinstance(answer, WorkerFailure):
            raise answer.error from RuntimeError(f"in a worker process:\n{answer.text}")
        if isinstance(answer, Lost):
            self._lose(request, answer)
        elif isinstance(request, Job):
            self._ended[request.position] = answer

    def _lose(self, request: SetUp | Job, lost: Lost) -> None:
        """Train the client of a lost worker again, unless too many workers were lost on it."""
        client = request.client if isinstance(request, Job) else None
        self._lost[client] += 1
        if self._lost[client] == ATTEMPTS:
            raise UserError(
                f"engine: lost {ATTEMPTS} worker processes while {request}, the last one {lost.why}; if memory is "
                "short, try --workers 1, otherwise --engine serial, which shows the error itself"
            )
        if isinstance(request, Job):
            self._waiting.appendleft((request.position, request.client))


def sizes_in_order(wire: Wire, places: int) -> list[int]:
    """The sizes of all shared vectors in order: the broadcast, then the vectors of each place."""
    return [*wire.broadcast.values(), *[*wire.upload.values(), *wire.slots.values()] * places]
