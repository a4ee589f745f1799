"""Worker processes: one single-threaded process per core, started once for all runs of this program.

The data set and the vectors of a round are in shared memory: a job is a client's id, its upload comes back in a place
of its own, and nothing of the model's size is pickled. Each worker trains a client by the serial engine, so the result
is that engine's to the last bit, whichever worker trained the client.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, Local, Vectors
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.shared import SharedFolder
from fedmim.simulation.training import Reply, Work, on

# Keep freed memory in the process: by default glibc gives the large temporaries of every step back to the kernel and
# faults them in again.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}

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


@dataclass(frozen=True)
class Job:
    """One client to train."""

    run: int
    position: int  # among the clients of the round
    round: int
    lr: float
    client: int


@dataclass(frozen=True)
class SetUp:
    """A run that a worker sets up, and runs that have ended, which it may drop."""

    run: int
    content: tuple[Any, ...]
    forget: list[int]


class ProcessEngine:
    """The engine of one run: shares what it needs with the workers, then trains its rounds on them."""

    def __init__(self, algorithm: Algorithm, model: FlatModel, device: str, workers: int) -> None:
        self._device, self._workers = device, workers
        self._names = _names(algorithm, model)
        self._shared: SharedVectors | None = None
        self._run = next(_NUMBERS)
        weakref.finalize(self, _ENDED.add, self._run)

    def __call__(self, algorithm: Algorithm, model: FlatModel, work: Work) -> Iterator[Reply]:
        """Train a round's clients; replies in the order of the clients, each valid until the next is asked for."""
        pool = Pool.of(self._workers)
        pool.drain()
        if self._shared is None or self._run not in pool.runs:
            self._shared = self._set_up(pool, algorithm, model, work)
        shared = self._shared
        for name, vector in work.down.items():
            shared.down[name].copy_(vector)
        shared.buffers.copy_(work.buffers)
        waiting = deque(enumerate(work.clients))
        losses: dict[int, float] = {}
        for position, client in enumerate(work.clients):
            self._hand_out(pool, shared, work, waiting, position)
            while position not in losses:
                losses.update(pool.receive())
                self._hand_out(pool, shared, work, waiting, position)
            place, device = shared.place(position), model.params.device
            upload, slots = on(device, place.upload), on(device, place.slots)
            yield Reply(client, upload, slots, place.buffers.to(device), losses[position])

    def _hand_out(
        self, pool: Pool, shared: SharedVectors, work: Work, waiting: deque[tuple[int, int]], position: int
    ) -> None:
        """Give the next clients to idle workers, as far as there are places for what comes back."""
        while waiting and pool.idle and waiting[0][0] < position + len(shared.places):
            number, client = waiting.popleft()
            for name, vector in work.slots(client).items():
                shared.place(number).slots[name].copy_(vector)
            pool.send(Job(self._run, number, work.round, work.lr, client))

    def _set_up(self, pool: Pool, algorithm: Algorithm, model: FlatModel, work: Work) -> SharedVectors:
        """Set this run up in the workers."""
        down, upload, slots = self._names
        places = 2 * len(pool.workers)
        rows = len(down) + places * (len(upload) + len(slots))
        with (folder := SharedFolder()):
            vectors, vectors_at = folder.empty((rows, len(model.params)), model.params.dtype)
            buffers, buffers_at = folder.empty((1 + places, len(work.buffers)), torch.float64)
            content = algorithm, work.task, work.settings, self._device, self._names, vectors_at, buffers_at
            pool.set_up(folder.dumps(SetUp(self._run, content, list(pool.runs & _ENDED))))
        pool.runs = (pool.runs - _ENDED) | {self._run}
        return SharedVectors(self._names, vectors, buffers)


def _names(algorithm: Algorithm, model: FlatModel) -> tuple[list[str], list[str], list[str]]:
    """The names of the vectors that go down, come up and stay with a client, from a round on zeros."""
    zeros = torch.zeros_like(model.params)
    down = algorithm.broadcast(algorithm.init(zeros))
    slots = dict.fromkeys(algorithm.client_slots, zeros)
    upload, _ = algorithm.finish(zeros, Local(down, slots, 1.0, 1.0))
    if any(vector.shape != zeros.shape for vector in (*down.values(), *upload.values())):
        raise UserError(f"engine: {algorithm.title} sends vectors that are not of the model's size; use serial")
    return list(down), list(upload), list(slots)


@dataclass(eq=False)
class Worker:
    """A process, the connection to it, and its present job."""

    process: subprocess.Popen[bytes]
    line: Connection
    job: Job | None = None


class Pool:
    """The workers, shared by all runs of this program; they end with it, however it ends."""

    _pools: dict[int, Pool] = {}  # noqa: RUF012

    def __init__(self, size: int) -> None:
        self.workers = [self._start(number) for number in range(size)]
        self.runs: set[int] = set()  # those that the workers know
        atexit.register(self.close)

    @classmethod
    def of(cls, size: int) -> Pool:
        """The pool of this many workers, started at the first call."""
        if size not in cls._pools:
            cls._pools[size] = cls(size)
        return cls._pools[size]

    @staticmethod
    def _start(number: int) -> Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            # Not by multiprocessing, which would run the user's script again in every worker.
            command = [sys.executable, "-m", "fedmim.simulation.worker", str(theirs.fileno()), str(number)]
            path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)  # for the user's own modules
            environment = {**os.environ, **ALLOCATOR, "PYTHONPATH": path}
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        return Worker(process, Connection(ours.detach()))

    @property
    def idle(self) -> list[Worker]:
        """The workers without a job."""
        return [worker for worker in self.workers if worker.job is None]

    def set_up(self, payload: bytes) -> None:
        """Set a run up in all workers; returns when each is ready."""
        for worker in self.workers:
            with self._alive(worker):
                worker.line.send_bytes(payload)
        for worker in self.workers:
            _raise(self._answer(worker))

    def send(self, job: Job) -> None:
        """Give a job to an idle worker."""
        worker = self.idle[0]
        worker.job = job
        with self._alive(worker):
            worker.line.send(job)

    def receive(self) -> list[tuple[int, float]]:
        """Wait for jobs to end: their positions and losses."""
        busy = {worker.line: worker for worker in self.workers if worker.job is not None}
        return [_raise(self._answer(busy[line])) for line in wait(list(busy))]  # type: ignore[index]

    def drain(self) -> None:
        """Wait for the jobs of a round that was abandoned, and drop their results."""
        for worker in self.workers:
            if worker.job is not None:
                self._answer(worker)

    def _answer(self, worker: Worker) -> Any:
        with self._alive(worker):
            answer = worker.line.recv()
        worker.job = None
        return answer

    @contextmanager
    def _alive(self, worker: Worker) -> Iterator[None]:
        """Report a worker that has died; the next round starts new ones."""
        try:
            yield
        except (EOFError, OSError) as error:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(timeout=5)  # its line closes a moment before it ends
            self.close()
            client = "" if worker.job is None else f" while training client {worker.job.client}"
            code = worker.process.returncode
            raise UserError(
                f"engine: a worker process ended with code {code}{client}; if memory was short, try --workers 1"
            ) from error

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.line.close()  # which they take for the end
            if worker.process.poll() is None:
                worker.process.terminate()
            worker.process.wait()
        Pool._pools = {size: pool for size, pool in Pool._pools.items() if pool is not self}


@dataclass(frozen=True)
class WorkerFailure:
    """An exception in a worker, with its traceback as text."""

    error: Exception
    text: str


def _raise(answer: Any) -> Any:
    """The answer, unless it is a failure."""
    if isinstance(answer, WorkerFailure):
        raise answer.error from RuntimeError(f"in a worker process:\n{answer.text}")
    return answer
