"""The pool of worker processes: starts workers, sends them work, and replaces workers that die or hang."""

from __future__ import annotations

import atexit
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from torch import Tensor

from fedmim.signals import held
from fedmim.simulation.child import GRACE, Child, end_children, how_it_ended, start_child
from fedmim.simulation.messages import Forget, Job, SetUp
from fedmim.simulation.shared import SharedMemory

# A worker counts as hanging if it takes no local step for this many seconds: AT_FIRST during set-up and until a client
# of the run has been trained, then AT_LEAST, and never less than TIMES the longest step of the run so far.
AT_FIRST, AT_LEAST, TIMES = 900.0, 120.0, 20.0
TICK = 1.0  # seconds between two checks of the workers


@dataclass(eq=False)
class SharedRun:
    """A run in shared memory, and how fast the workers train it."""

    memory: SharedMemory
    set_up: SetUp
    gradients: Tensor  # number of gradients that each worker has computed
    slowest: float = 0.0  # longest local step so far, in seconds
    jobs: int = 0  # number of finished jobs

    def patience(self, request: SetUp | Job) -> float:
        """The number of seconds without a local step after which a worker counts as hanging."""
        known = self.jobs > 0 and isinstance(request, Job)
        return max(AT_LEAST if known else AT_FIRST, TIMES * self.slowest)


@dataclass(frozen=True)
class Lost:
    """Instead of an answer: the worker died, or hung and was killed."""

    why: str


@dataclass(eq=False)
class Assignment:
    """The current request of a worker, and its progress."""

    run: SharedRun
    request: SetUp | Job
    worker: int
    gradients: int = 0  # at the last check
    silent: float = 0.0  # seconds since they last changed

    def hangs_after(self, seconds: float) -> bool:
        """Whether the worker hangs, this many seconds after the last check."""
        gradients = int(self.run.gradients[self.worker])
        self.silent += seconds
        if gradients != self.gradients:
            self.run.slowest = max(self.run.slowest, self.silent)
            self.gradients, self.silent = gradients, 0.0
        return self.silent >= self.run.patience(self.request)


@dataclass(eq=False)
class Worker(Child):
    """A worker process, and the runs that it has set up."""

    number: int
    runs: set[int] = field(default_factory=set)
    assignment: Assignment | None = None


class Pool:
    """The workers, shared by all runs of this program. They end when the program ends, even if it is killed."""

    _pools: dict[int, Pool] = {}  # noqa: RUF012

    def __init__(self, size: int) -> None:
        self.size = size
        self.workers: dict[int, Worker] = {}
        self._looked = 0.0  # time of the last check
        atexit.register(self.close)

    @classmethod
    def of(cls, size: int) -> Pool:
        """The pool of this many workers."""
        if size not in cls._pools:
            cls._pools[size] = cls(size)
        return cls._pools[size]

    def ready(self, ended: set[int]) -> None:
        """Prepare for a round: all workers are alive, idle, and without the runs that have ended."""
        self.drain()
        for number in range(self.size):
            if number not in self.workers:
                self._start(number)
            elif (worker := self.workers[number]).process.poll() is not None:
                self._replace(worker, how_it_ended(worker.process), "idle")
        self.forget(ended)

    def drain(self) -> None:
        """Wait until all workers are idle and discard their answers: the round is over or was aborted."""
        while len(self.idle) < len(self.workers):
            self.receive()

    def forget(self, ended: set[int]) -> None:
        """Tell the idle workers to free the memory of runs that have ended."""
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
        with self._whole(worker), suppress(OSError):  # if the worker has died, `receive` will notice
            worker.line.send(request, [run.memory.descriptor] if isinstance(request, SetUp) else [])

    def receive(self) -> list[tuple[SetUp | Job, Any]]:
        """Wait briefly for answers. For a worker that died or hangs, the answer is Lost and the worker is replaced."""
        busy = [(worker, worker.assignment) for worker in self.workers.values() if worker.assignment is not None]
        came = wait([worker.line.fileno() for worker, _ in busy], timeout=TICK)
        now = time.monotonic()
        # The time that this process was stopped or busy with something else does not count.
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
                worker.process.wait(timeout=GRACE)  # its connection closes just before it exits
            return self._replace(worker, how_it_ended(worker.process), str(request))
        if isinstance(request, Job):
            run.jobs += 1
        elif answer is None:
            worker.runs.add(request.run)
        return answer

    @contextmanager
    def _whole(self, worker: Worker) -> Iterator[None]:
        """End a worker if an interrupt cuts off a message to or from it; the next round starts a new one."""
        try:
            yield
        except KeyboardInterrupt:
            del self.workers[worker.number]
            end_children([worker], patience=0.0)
            raise

    def _replace(self, worker: Worker, why: str, doing: str) -> Lost:
        """Replace a worker that died or hangs."""
        end_children([worker], patience=0.0)
        self._start(worker.number)
        warnings.warn(f"worker process {worker.process.pid} {why} while {doing}; a new one replaces it", stacklevel=2)
        return Lost(why)

    def _start(self, number: int) -> None:
        with held():
            self.workers[number] = Worker(*start_child("fedmim.simulation.worker", str(number)), number)

    def close(self) -> None:
        """End the workers; the next round starts new ones."""
        workers, self.workers = list(self.workers.values()), {}
        end_children(workers, patience=GRACE)
