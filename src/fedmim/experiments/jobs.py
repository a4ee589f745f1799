"""Several runs at once: each is trained by a process of its own that uses one core.

The processes share the data set. They give the same bits as runs one after the other: a run does not depend on the
process that trains it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Self

from fedmim.errors import warn_user
from fedmim.experiments.job_messages import Data, Progress, Start, Told, pickled, sending, show
from fedmim.experiments.run_cost import longest_first, source_of
from fedmim.experiments.sources import AnySource, forget_data
from fedmim.experiments.works import Display, Ended, Failed, JobWork, LostJobError
from fedmim.signals import held
from fedmim.simulation.child import GRACE, Child, end_children, how_it_ended, start_child

if TYPE_CHECKING:
    from fedmim.simulation.shared import SharedMemory, Span


@dataclass(eq=False)
class JobProcess:
    """A process, the number of the work that it does, and the data set that it has."""

    child: Child
    work: int | None = None
    source: AnySource | None = None


class JobPool:
    """The processes of a command. They end with it, even if it is killed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._jobs: list[JobProcess] = []
        self._data: dict[AnySource, tuple[SharedMemory, Span]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all processes. Ctrl-C and SIGTERM stop the runs at a safe point first; a second one does not wait."""
        try:
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                self._stop()
        finally:
            jobs, self._jobs = self._jobs, []
            end_children([job.child for job in jobs], patience=0.0)

    def start(self) -> None:
        """Start all processes before there is work for them."""
        for _ in range(self.count - len(self._jobs)):
            self._start()

    def resize(self, count: int) -> None:
        """Change the number of works at once; ends processes that are idle."""
        self.count = count
        surplus = [job for job in self._jobs if job.work is None][: max(0, len(self._jobs) - count)]
        self._jobs = [job for job in self._jobs if job not in surplus]
        end_children([job.child for job in surplus], patience=0.0)

    def __call__(self, works: Sequence[JobWork], display: Display) -> Iterator[tuple[int, Ended | Failed]]:
        """Do all works and yield their numbers and answers, as they end. A failed one does not stop the others."""
        left = longest_first([work.run for work in works])
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

    def _share(self, source: AnySource, needed: set[AnySource]) -> None:
        """Put a data set into shared memory, and free those that no work needs any more."""
        from fedmim.simulation.shared import SharedLayout

        self._data = {each: shared for each, shared in self._data.items() if each in needed}
        if source not in self._data:
            data = source.load()
            with sending():
                self._data[source] = SharedLayout().share(data)
            forget_data()  # this process does not train

    def _idle(self) -> JobProcess:
        """An idle process; a new one if there is none."""
        return next((job for job in self._jobs if job.work is None), None) or self._start()

    def _start(self) -> JobProcess:
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
        if isinstance(message, Progress | Told):
            show(message, display)
        else:
            assert isinstance(message, Ended | Failed)
            return message
        return None

    def _lost(self, job: JobProcess) -> str:
        """How a process ended that was not asked to; another one does the next work."""
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
