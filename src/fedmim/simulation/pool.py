"""The pool of worker processes: starts them, hands them work, and replaces those that die or hang."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmim.signals import held
from fedmim.simulation.messages import Forget, Job, Line, SetUp
from fedmim.simulation.shared import SharedMemory

# Keep freed memory in the process: by default glibc gives the large temporaries of every step back to the kernel and
# faults them in again.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}

# A worker hangs when it takes no local step for this many seconds: AT_FIRST in its set-up and until a client of the run
# is trained, AT_LEAST afterwards, and in any case TIMES as long as any step of the run has taken so far.
AT_FIRST, AT_LEAST, TIMES = 900.0, 120.0, 20.0
TICK = 1.0  # seconds between two looks at the workers
TALK = 30.0  # seconds for a message, which is short and read at once
GRACE = 2.0  # seconds for a worker to end by itself


@dataclass(eq=False)
class SharedRun:
    """A run that workers set up, and how fast they train it."""

    memory: SharedMemory
    set_up: SetUp
    gradients: Tensor  # how many each worker has computed
    slowest: float = 0.0  # the longest that a worker took for a step, in seconds
    jobs: int = 0  # that have ended

    def patience(self, request: SetUp | Job) -> float:
        """How many seconds without a local step are taken for a hang."""
        known = self.jobs > 0 and isinstance(request, Job)
        return max(AT_LEAST if known else AT_FIRST, TIMES * self.slowest)


@dataclass(frozen=True)
class Lost:
    """In place of an answer: the worker has died, or hung and was killed."""

    why: str


@dataclass(eq=False)
class Assignment:
    """What a worker is at work on, and how it goes."""

    run: SharedRun
    request: SetUp | Job
    worker: int
    gradients: int = 0  # when they were looked at last
    silent: float = 0.0  # seconds since they changed

    def hangs_after(self, seconds: float) -> bool:
        """Whether the worker hangs, so many seconds after this was asked last."""
        gradients = int(self.run.gradients[self.worker])
        self.silent += seconds
        if gradients != self.gradients:
            self.run.slowest = max(self.run.slowest, self.silent)
            self.gradients, self.silent = gradients, 0.0
        return self.silent >= self.run.patience(self.request)


@dataclass(eq=False)
class Worker:
    """A process, the connection to it, and the runs that it knows."""

    number: int
    process: subprocess.Popen[bytes]
    line: Line
    runs: set[int] = field(default_factory=set)
    assignment: Assignment | None = None


class Pool:
    """The workers, shared by all runs of this program; they end with it, however it ends."""

    _pools: dict[int, Pool] = {}  # noqa: RUF012

    def __init__(self, size: int) -> None:
        self.size = size
        self.workers: dict[int, Worker] = {}
        self._looked = 0.0  # when
        atexit.register(self.close)

    @classmethod
    def of(cls, size: int) -> Pool:
        """The pool of this many workers."""
        if size not in cls._pools:
            cls._pools[size] = cls(size)
        return cls._pools[size]

    def ready(self, ended: set[int]) -> None:
        """Before a round: all workers alive, idle, and without the runs that have ended."""
        self.drain()
        for number in range(self.size):
            if number not in self.workers:
                self._start(number)
            elif (worker := self.workers[number]).process.poll() is not None:
                self._replace(worker, _how_it_ended(worker), "idle")
        self.forget(ended)

    def drain(self) -> None:
        """Wait until all workers are idle, and drop their answers: the round is over, or was abandoned."""
        while len(self.idle) < len(self.workers):
            self.receive()

    def forget(self, ended: set[int]) -> None:
        """Let the idle workers free the memory of runs that have ended."""
        for worker in self.idle:
            if runs := worker.runs & ended:
                worker.runs -= runs
                with self._whole(worker), suppress(OSError):
                    worker.line.send(Forget(sorted(runs)))

    @property
    def idle(self) -> list[Worker]:
        """The workers without work."""
        return [worker for worker in self.workers.values() if worker.assignment is None]

    def send(self, worker: Worker, run: SharedRun, request: SetUp | Job) -> None:
        """Give work to an idle worker."""
        worker.assignment = Assignment(run, request, worker.number, int(run.gradients[worker.number]))
        with self._whole(worker), suppress(OSError):  # of a worker that has died, as `receive` will find
            worker.line.send(request, [run.memory.descriptor] if isinstance(request, SetUp) else [])

    def receive(self) -> list[tuple[SetUp | Job, Any]]:
        """Wait a while for answers: those that came, and Lost for workers that died or hang, which are replaced."""
        busy = [(worker, worker.assignment) for worker in self.workers.values() if worker.assignment is not None]
        came = wait([worker.line.fileno() for worker, _ in busy], timeout=TICK)
        now = time.monotonic()
        # While this process was stopped or busy with something else, nothing is known of the workers.
        seconds, self._looked = min(now - self._looked, 2 * TICK), now
        answers: list[tuple[SetUp | Job, Any]] = []
        for worker, assignment in busy:
            request, hangs = assignment.request, assignment.hangs_after(seconds)
            if worker.line.fileno() in came:
                answers.append((request, self._answer(worker, assignment)))
            elif hangs:
                worker.process.kill()
                why = f"took no step for {assignment.silent:.0f} s and was killed"
                answers.append((request, self._replace(worker, why, str(request))))
        return answers

    def _answer(self, worker: Worker, assignment: Assignment) -> Any:
        run, request = assignment.run, assignment.request
        try:
            with self._whole(worker):
                answer, _ = worker.line.receive()
                worker.assignment = None
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(timeout=GRACE)  # its line closes a moment before it ends
            return self._replace(worker, _how_it_ended(worker), str(request))
        if isinstance(request, Job):
            run.jobs += 1
        elif answer is None:
            worker.runs.add(request.run)
        return answer

    @contextmanager
    def _whole(self, worker: Worker) -> Iterator[None]:
        """End a worker if an interrupt leaves it with a part of a message; the next round starts another."""
        try:
            yield
        except KeyboardInterrupt:
            del self.workers[worker.number]
            _end([worker], patience=0.0)
            raise

    def _replace(self, worker: Worker, why: str, doing: str) -> Lost:
        """Start another worker in place of one that has died or hangs."""
        _end([worker], patience=0.0)
        self._start(worker.number)
        warnings.warn(f"worker process {worker.process.pid} {why} while {doing}; another takes its place", stacklevel=2)
        return Lost(why)

    def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(TALK)
        # Not by multiprocessing, which would run the user's script again in every worker.
        command = [sys.executable, "-m", "fedmim.simulation.worker", str(theirs.fileno()), str(number)]
        path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)  # for the user's own modules
        environment = {**os.environ, **ALLOCATOR, "PYTHONPATH": path}
        with theirs, held(), _deaf():
            # In a process group of its own, where signals to the program's group do not reach it.
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, process_group=0)
            self.workers[number] = Worker(number, process, Line(ours))

    def close(self) -> None:
        """End the workers; the next round starts others."""
        workers, self.workers = list(self.workers.values()), {}
        _end(workers, patience=GRACE)


@contextmanager
def _deaf() -> Iterator[None]:
    """Block SIGINT, so that a process that is started is deaf to it from its first instant on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(workers: list[Worker], patience: float) -> None:
    """End workers: close their connections, which they take for the end, and kill those that do not end in time."""
    for worker in workers:
        worker.line.close()
    deadline = time.monotonic() + patience
    for worker in workers:
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(timeout=max(0.0, deadline - time.monotonic()))
    for worker in workers:
        worker.process.kill()
        with suppress(subprocess.TimeoutExpired):  # a process that the kernel does not let go cannot be waited for
            worker.process.wait(timeout=GRACE)


def _how_it_ended(worker: Worker) -> str:
    code = worker.process.returncode
    if code is None:
        return "stopped answering"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
