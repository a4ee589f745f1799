"""The messages between a command and its job processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import cloudpickle

from fedmim.errors import UserError, warn_user
from fedmim.experiments.run import Run
from fedmim.experiments.sources import AnySource
from fedmim.experiments.works import Display, JobWork

if TYPE_CHECKING:
    from fedmim.simulation.record import Record
    from fedmim.simulation.shared import Span


@dataclass(frozen=True)
class Data:
    """To a job: a data set; sent with the descriptor of its shared memory."""

    source: AnySource
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


def pickled(work: JobWork) -> bytes:
    """The work for another process."""
    with sending():
        content: bytes = cloudpickle.dumps(work)
    return content


@contextmanager
def sending() -> Iterator[None]:
    """Errors in this block mean that something cannot be pickled."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a user's method, callback or task can fail in any way
        raise UserError(
            f"jobs: cannot be sent to another process ({error}); use --jobs 1 (in Python: jobs=1)"
        ) from error


def show(message: Progress | Told, display: Display) -> None:
    """Show what a job tells."""
    if isinstance(message, Told):
        warn_user(message.text)
    elif message.record is None:
        display.skip(unpickled(message.run))
    else:
        display.record(unpickled(message.run), message.record)


@lru_cache(maxsize=256)
def unpickled(run: bytes) -> Run:
    """A run from a job. The same object for the same run."""
    made: Run = cloudpickle.loads(run)
    return made
