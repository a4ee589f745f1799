"""Several runs at once: each is trained by a process of its own that uses one core.

The processes share the data set. They give the same bits as runs one after the other: a run does not depend on the
process that trains it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import cloudpickle

from fedmim.errors import DivergedError, UserError, warn_user
from fedmim.experiments.config import Source, forget_data
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.sweep import Display, Failure
from fedmim.signals import held

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback
    from fedmim.simulation.child import Child
    from fedmim.simulation.record import Record
    from fedmim.simulation.shared import SharedMemory, Span


class LostJobError(UserError):
    """The process of a job has ended, for example because the system killed it when memory was short."""


class JobWork(Protocol):
    """A piece of work for a job: called in its process, with a display for its progress."""

    @property
    def run(self) -> Run:
        """The run, or one on the same data."""

    def __call__(self, display: Display) -> Any:
        """Do the work."""


SomeWork = TypeVar("SomeWork", bound=JobWork)


@dataclass(frozen=True)
class FolderWork:
    """Train a run in its folder, with callbacks."""

    path: Path
    run: Run
    every: float  # seconds between checkpoints
    callbacks: tuple[Callback, ...] = ()

    def __call__(self, display: Display) -> None:
        """Train the run. One that diverged counts as ended: it is shown with the results."""
        from fedmim.simulation.callbacks import RunInfo, telling

        run = self.run
        with telling(self.callbacks, RunInfo.of(self.path.name, run.algorithm, run.config.flat())) as tell:

            def watch(record: Record) -> None:
                display.record(run, record)
                tell(record)

            try:
                RunFolder(self.path, run).train(run.config.task(), watch, self.every)
            except DivergedError:
                display.skip(run)


@dataclass(frozen=True)
class Data:
    """To a job: a data set; sent with the descriptor of its shared memory."""

    source: Source
    content: Span


@dataclass(frozen=True)
class Start:
    """To a job: the next work, pickled."""

    work: bytes


@dataclass(frozen=True)
class Progress:
    """From a job: a round of a pickled run has ended; without a record, the run is skipped."""

    run: bytes
    record: Record | None


@dataclass(frozen=True)
class Told:
    """From a job: a warning."""

    text: str


@dataclass(frozen=True)
class Ended:
    """From a job: the work is done."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """From a job: the work failed, with the traceback as text."""

    error: Exception
    text: str = ""


@dataclass(eq=False)
class JobProcess:
    """A process, the number of the work that it does, and the data set that it has."""

    child: Child
    work: int | None = None
    source: Source | None = None


class JobPool:
    """The processes of a command. They end with it, even if it is killed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._jobs: list[JobProcess] = []
        self._data: dict[Source, tuple[SharedMemory, Span]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all processes. Ctrl-C and SIGTERM stop the runs at a safe point first; a second one does not wait."""
        from fedmim.simulation.child import end_children

        try:
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                self._stop()
        finally:
            jobs, self._jobs = self._jobs, []
            end_children([job.child for job in jobs], patience=0.0)

    def __call__(self, works: Sequence[JobWork], display: Display) -> Iterator[tuple[int, Ended | Failed]]:
        """Do all works and yield their numbers and answers, as they end. A failed one does not stop the others."""
        left = list(range(len(works)))
        while left or self._busy():
            yield from self._hand_out(works, left)
            for job in self._ready():
                if (answer := self._take(job, display)) is not None:
                    number, job.work = job.work, None
                    assert number is not None
                    yield number, answer

    def _busy(self) -> list[JobProcess]:
        return [job for job in self._jobs if job.work is not None]

    def _ready(self) -> list[JobProcess]:
        busy = self._busy()
        if not busy:  # nothing could start
            return []
        came = wait([job.child.line.fileno() for job in busy])
        return [job for job in busy if job.child.line.fileno() in came]

    def _hand_out(self, works: Sequence[JobWork], left: list[int]) -> Iterator[tuple[int, Failed]]:
        """Give work to idle jobs; yields the works that cannot start."""
        while left and len(self._busy()) < self.count:
            needed = {source_of(works[number].run) for number in left}
            number = left.pop(0)
            source = source_of(works[number].run)
            try:
                content = pickled(works[number])
                self._share(source, needed)
            except Exception as error:  # of the data
                yield number, Failed(error)
                continue
            job = self._idle()
            job.work = number
            memory, span = self._data[source]
            with held(), suppress(OSError):  # if the process has died, `_take` will notice
                if job.source != source:
                    job.child.line.send(Data(source, span), [memory.descriptor])
                    job.source = source
                job.child.line.send(Start(content))

    def _share(self, source: Source, needed: set[Source]) -> None:
        """Put a data set into shared memory, and free those that no work needs any more."""
        from fedmim.simulation.shared import SharedLayout

        self._data = {each: shared for each, shared in self._data.items() if each in needed}
        if source not in self._data:
            self._data[source] = SharedLayout().share(source.load())
            forget_data()  # this process does not train

    def _idle(self) -> JobProcess:
        """An idle process; a new one if there is none."""
        from fedmim.simulation.child import Child, start_child

        for job in self._jobs:
            if job.work is None:
                return job
        with held():
            one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            job = JobProcess(Child(*start_child("fedmim.experiments.job", environment=one)))
            self._jobs.append(job)
        return job

    def _take(self, job: JobProcess, display: Display) -> Ended | Failed | None:
        """Take a message of a job; the answer, if its work has ended."""
        try:
            with held():  # an interrupt must not cut off a message
                message, _ = job.child.line.receive()
        except (EOFError, OSError):
            return Failed(LostJobError(self._lost(job)))
        if isinstance(message, Progress):
            run = unpickled(message.run)
            if message.record is None:
                display.skip(run)
            else:
                display.record(run, message.record)
        elif isinstance(message, Told):
            warn_user(message.text)
        else:
            assert isinstance(message, Ended | Failed)
            return message
        return None

    def _lost(self, job: JobProcess) -> str:
        """How a process ended that was not asked to; another one does the next work."""
        from fedmim.simulation.child import GRACE, end_children, how_it_ended

        self._jobs.remove(job)
        with suppress(subprocess.TimeoutExpired):
            job.child.process.wait(timeout=GRACE)  # its connection closes just before it exits
        how = how_it_ended(job.child.process)
        end_children([job.child], patience=0.0)
        return f"jobs: the process that trained this run {how}; if memory is short, lower --jobs"

    def _stop(self) -> None:
        """Ask all jobs to stop, and wait until they have written their checkpoints and ended."""
        for job in (busy := self._busy()):
            job.child.process.terminate()
        for job in busy:
            with suppress(EOFError, OSError):
                while wait([job.child.line.fileno()]):
                    message, _ = job.child.line.receive()
                    if isinstance(message, Told):
                        warn_user(message.text)


def failures_of(works: Sequence[JobWork], pool: JobPool, display: Display) -> list[Failure]:
    """Do all works and return the failures, in the order of the works."""
    failures = {}
    for number, answer in pool(works, display):
        if isinstance(answer, Failed):
            failures[number] = Failure(works[number].run, answer.error)
            display.skip(works[number].run)
    return [failures[number] for number in sorted(failures)]


def answers_of(
    works: Sequence[SomeWork], pool: JobPool, display: Display
) -> Iterator[tuple[SomeWork, Any | Exception]]:
    """Do all works, here if there is only one job; yields each with its value or error, as they end."""
    if pool.count > 1:
        for number, answer in pool(works, display):
            yield works[number], answer.error if isinstance(answer, Failed) else answer.value
        return
    for work in works:
        try:
            yield work, work(display)
        except Exception as error:
            yield work, error


def source_of(run: Run) -> Source:
    """Where the data of a run comes from."""
    return run.config.problem.source(run.config.execution.data_dir)


def pickled(work: JobWork) -> bytes:
    """The work for another process."""
    try:
        content: bytes = cloudpickle.dumps(work)
    except Exception as error:  # a user's method or callback can fail in any way
        raise UserError(f"jobs: cannot be sent to another process ({error}); use --jobs 1") from error
    return content


@lru_cache(maxsize=256)
def unpickled(run: bytes) -> Run:
    """A run from a job. The same object for the same run."""
    made: Run = cloudpickle.loads(run)
    return made
