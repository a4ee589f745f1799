"""The engine of worker processes: one single-threaded process per core, started once for all runs of this program.

The data set and the vectors of a round are in shared memory: a job is a client's id, its upload comes back in a place
of its own, and nothing of the model's size is pickled. Each worker trains a client by the serial engine, so the result
is that engine's to the last bit, whichever worker trained the client, and however often.
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

from fedmim.algorithms import Algorithm, Local, Vectors
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.messages import Job, SetUp, WorkerFailure
from fedmim.simulation.pool import Lost, Pool, SharedRun
from fedmim.simulation.shared import SharedLayout
from fedmim.simulation.training import Reply, Work, on

ATTEMPTS = 3  # at a client whose worker dies or hangs

_NUMBERS = count()  # of the runs of this program
_ENDED: set[int] = set()


@dataclass(frozen=True)
class Place:
    """One client's vectors in shared memory."""

    upload: Vectors
    slots: Vectors
    buffers: Tensor


class SharedVectors:
    """The vectors that the server and its workers share in a run."""

    def __init__(self, names: tuple[list[str], list[str], list[str]], vectors: Tensor, buffers: Tensor) -> None:
        down, upload, slots = names
        rows = iter(vectors)  # (rows, d)
        self.down: Vectors = {name: next(rows) for name in down}
        self.buffers, *own = buffers  # (1 + places, b)
        self.places = [
            Place({name: next(rows) for name in upload}, {name: next(rows) for name in slots}, each) for each in own
        ]

    def place(self, position: int) -> Place:
        """The place of the client at this position of a round; those of later clients take turns."""
        return self.places[position % len(self.places)]


class ProcessEngine:
    """The engine of one run: shares what it needs with the workers, then trains its rounds on them."""

    def __init__(self, algorithm: Algorithm, model: FlatModel, device: str, workers: int) -> None:
        self._device, self._workers = device, workers
        self._names = _names(algorithm, model)
        self._shared: tuple[SharedRun, SharedVectors] | None = None

    def __call__(self, algorithm: Algorithm, model: FlatModel, work: Work) -> Iterator[Reply]:
        """Train a round's clients; replies in the order of the clients, each valid until the next is asked for."""
        pool = Pool.of(self._workers)
        pool.ready(_ENDED)
        self._shared = self._shared or self._share(algorithm, model, work)
        run, shared = self._shared
        for name, vector in work.down.items():
            shared.down[name].copy_(vector)
        shared.buffers.copy_(work.buffers)
        training, device = _Round(pool, run, shared, work), model.params.device
        for position, client in enumerate(work.clients):
            loss, place = training.loss(position), shared.place(position)
            upload, slots = on(device, place.upload), on(device, place.slots)
            yield Reply(client, upload, slots, place.buffers.to(device), loss)
        if work.round + 1 == work.settings.rounds:  # the last one: free the memory in all processes
            self._shared = None
            pool.drain()  # a worker may still be setting the run up
            pool.forget({run.set_up.run})

    def _share(self, algorithm: Algorithm, model: FlatModel, work: Work) -> tuple[SharedRun, SharedVectors]:
        """Put what the workers need into shared memory."""
        down, upload, slots = self._names
        places = 2 * self._workers
        rows = len(down) + places * (len(upload) + len(slots))
        layout, number = SharedLayout(), next(_NUMBERS)
        spans = (
            layout.zeros((rows, len(model.params)), model.params.dtype),
            layout.zeros((1 + places, len(work.buffers)), torch.float64),
            layout.zeros((self._workers,), torch.int64),
        )
        memory, content = layout.share((algorithm, work.task, work.settings, self._device, self._names, spans))
        vectors, buffers, gradients = map(memory.tensor, spans)
        run = SharedRun(memory, SetUp(number, content), gradients)
        weakref.finalize(run, _ENDED.add, number)
        return run, SharedVectors(self._names, vectors, buffers)


class _Round:
    """A round in progress: who waits to be trained, and the losses of those that were."""

    def __init__(self, pool: Pool, run: SharedRun, shared: SharedVectors, work: Work) -> None:
        self._pool, self._run, self._shared, self._work = pool, run, shared, work
        self._waiting = deque(enumerate(work.clients))
        self._losses: dict[int, float] = {}
        self._lost: Counter[int | None] = Counter()  # workers, by the client that they trained

    def loss(self, position: int) -> float:
        """Wait for the client at this position: its vectors are in its place then."""
        self._hand_out(position)
        while position not in self._losses:
            for request, answer in self._pool.receive():
                self._take(request, answer)
            self._hand_out(position)
        return self._losses[position]

    def _hand_out(self, position: int) -> None:
        """Give the next clients to idle workers, as far as there are places for what comes back."""
        for worker in self._pool.idle:
            if not self._waiting or self._waiting[0][0] >= position + len(self._shared.places):
                return
            if self._run.set_up.run not in worker.runs:
                self._pool.send(worker, self._run, self._run.set_up)
                continue
            number, client = self._waiting.popleft()
            for name, vector in self._work.slots(client).items():
                self._shared.place(number).slots[name].copy_(vector)
            job = Job(self._run.set_up.run, number, self._work.round, self._work.lr, client)
            self._pool.send(worker, self._run, job)

    def _take(self, request: SetUp | Job, answer: Any) -> None:
        if isinstance(answer, WorkerFailure):
            raise answer.error from RuntimeError(f"in a worker process:\n{answer.text}")
        if isinstance(answer, Lost):
            self._lose(request, answer)
        elif isinstance(request, Job):
            self._losses[request.position] = answer

    def _lose(self, request: SetUp | Job, lost: Lost) -> None:
        """Train the client of a lost worker again, unless it has cost too many of them."""
        client = request.client if isinstance(request, Job) else None
        self._lost[client] += 1
        if self._lost[client] == ATTEMPTS:
            raise UserError(
                f"engine: {ATTEMPTS} worker processes were lost while {request}, the last one {lost.why}; if memory is "
                "short, try --workers 1, otherwise --engine serial, which shows errors where they happen"
            )
        if isinstance(request, Job):
            self._waiting.appendleft((request.position, request.client))


def _names(algorithm: Algorithm, model: FlatModel) -> tuple[list[str], list[str], list[str]]:
    """The names of the vectors that go down, come up and stay with a client, from a round on zeros."""
    zeros = torch.zeros_like(model.params)
    down = algorithm.broadcast(algorithm.init(zeros))
    slots = dict.fromkeys(algorithm.client_slots, zeros)
    upload, _ = algorithm.finish(zeros, Local(down, slots, 1.0, 1.0))
    if any(vector.shape != zeros.shape for vector in (*down.values(), *upload.values())):
        raise UserError(f"engine: {algorithm.title} sends vectors that are not of the model's size; use serial")
    return list(down), list(upload), list(slots)
