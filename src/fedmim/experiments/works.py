"""Works and the pools that do them: in this process, in processes of this machine (`JobPool`), or elsewhere.

A work trains one run, one trial or one search. A run does not depend on where it is trained, so every pool gives the
same bits. `train_folders`, `reproduce` and `tune` take any `WorkPool`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from fedmim.errors import BusyError, UserError
from fedmim.experiments.run import Run

if TYPE_CHECKING:
    from fedmim.simulation.record import Record


class Display(Protocol):
    """Shows the progress of runs."""

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""

    def skip(self, run: Run) -> None:
        """A run is already finished, or stops early."""

    def fail(self, run: Run) -> None:
        """A run has failed. Called by the command, not by works."""


class JobWork(Protocol):
    """A piece of work. It can be pickled with cloudpickle and called in another process."""

    @property
    def run(self) -> Run:
        """The run, or one on the same data."""

    @property
    def folder(self) -> Path:
        """The folder that the work writes to. Locks, checkpoints and results are there."""

    def __call__(self, display: Display) -> Any:
        """Do the work and show its progress."""

    def moved(self, folder: Path) -> JobWork:
        """The same work in another folder."""

    def claimed(self) -> AbstractContextManager[JobWork | None]:
        """Lock the folder, for a machine that does not see it; the work to do there. None: there is nothing to do.

        At the end of the block, the folder has the results. An error in the block means that they are not complete.
        """


@dataclass(frozen=True)
class Ended:
    """The work is done."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The work raised this error, or could not be done."""

    error: Exception


class LostJobError(UserError):
    """A work ended without an answer, for example because the system killed its process when memory was short."""


class WorkPool(Protocol):
    """Does works, up to `count` at a time. Use it as a context manager: at the end of the block nothing of it runs."""

    @property
    def count(self) -> int:
        """The number of works at once, for the display."""

    def __call__(self, works: Sequence[JobWork], display: Display) -> Iterator[tuple[int, Ended | Failed]]:
        """Do all works; yields the index and the answer of each as it ends. A failed work does not stop the others.

        The progress of all works goes to `display`, which is called in this thread only. A work whose process is lost
        is `Failed(LostJobError)`; its run can be resumed. May be called several times, one after the other.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End everything. After KeyboardInterrupt, first interrupt the works, so that they write their checkpoints.

        Blocks may be nested: the end of the inner one counts.
        """


class ThisProcess:
    """A pool that does one work after the other in this process."""

    count = 1

    def __call__(self, works: Sequence[JobWork], display: Display) -> Iterator[tuple[int, Ended | Failed]]:
        """Do all works in order."""
        for number, work in enumerate(works):
            try:
                answer: Ended | Failed = Ended(work(display))
            except Exception as error:
                answer = Failed(error)
            yield number, answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to end."""


SomeWork = TypeVar("SomeWork", bound=JobWork)


def answers_of(
    works: Sequence[SomeWork], pool: WorkPool, display: Display
) -> Iterator[tuple[SomeWork, Any | Exception]]:
    """Do all works; yields each with its value or error, as they end."""
    for number, answer in pool(works, display):
        yield works[number], answer.error if isinstance(answer, Failed) else answer.value


@dataclass(frozen=True)
class Failure:
    """A run that failed, and its error."""

    run: Run
    error: Exception

    def __str__(self) -> str:
        problem, seed = self.run.config.problem, self.run.config.settings.seed
        notes = "".join(f", {note}" for note in getattr(self.error, "__notes__", []))
        kind = "" if isinstance(self.error, UserError) else f"{type(self.error).__name__}: "
        return f"{self.run.label}, {problem.short('data')}, {problem.split}, seed {seed}: {kind}{self.error}{notes}"


def failures_of(works: Sequence[JobWork], pool: WorkPool, display: Display) -> list[Failure]:
    """Do all works and return the failures, in the order of the works."""
    failures = {}
    for number, answer in pool(works, display):
        if isinstance(answer, Failed):
            failures[number] = Failure(works[number].run, answer.error)
            elsewhere = isinstance(answer.error, BusyError)  # another process trains it
            (display.skip if elsewhere else display.fail)(works[number].run)
    return [failures[number] for number in sorted(failures)]


def raise_failures(failures: Sequence[Failure], how: str) -> None:
    """Print a line for each failure, then raise one that says how to retry them."""
    for failure in failures:
        print(f"fedmim: {failure}", file=sys.stderr)
    if failures:
        raise UserError(f"{len(failures)} failed; {how}")
