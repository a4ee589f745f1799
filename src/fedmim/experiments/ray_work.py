"""A work on a node of a Ray cluster: in the folder itself if the nodes share it, else in a copy that is sent back."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from fedmim.errors import BusyError, UserError
from fedmim.experiments.folder_copy import ChangedFiles, FolderWatch
from fedmim.experiments.job import SentProgress
from fedmim.experiments.job_messages import Told
from fedmim.experiments.sources import AnySource, use_shared
from fedmim.experiments.works import Ended, Failed
from fedmim.signals import terminable

if TYPE_CHECKING:
    from fedmim.experiments.run import Run
    from fedmim.simulation.packing import Packed
    from fedmim.simulation.record import Record

EVERY = 0.25  # seconds between two messages about progress
LOCKED = 60.0  # seconds for the lock of a lost process to be released

_source: AnySource | None = None  # of the data set that this process uses


@dataclass(frozen=True)
class RayOrder:
    """A work as it is sent to a node."""

    number: int
    attempt: int
    work: bytes
    source: AnySource
    versions: tuple[str, str]
    folder: ChangedFiles | None  # the content of the work's folder; None: the node sees the folder itself


def do_order(order: RayOrder, data: Packed, queue: Any) -> Ended | Failed:
    """Do a work; the answer. Progress, warnings and copies of the folder go to the queue, with the work's number."""
    from fedmim.simulation.engines import use_one_core
    from fedmim.simulation.ray_actors import About
    from fedmim.simulation.trainer import sendable

    about = About.of_this_process()
    if about.versions != order.versions:
        theirs, ours = (f"fedmim {each[0]} and torch {each[1]}" for each in (about.versions, order.versions))
        wrong = f"ray: {about.host} has {theirs}, the driver {ours}; install the same on every node"
        return Failed(UserError(wrong))
    use_one_core()
    outbox = Outbox(lambda messages: queue.put_nowait_batch([(order.number, each) for each in messages]))
    outbox.send(None)  # the work has a CPU; its first round may take long
    before, warnings.showwarning = warnings.showwarning, lambda message, *_, **__: outbox.send(Told(str(message)))
    try:
        with terminable():  # Ray interrupts a task that is cancelled
            use_data(order.source, data)
            return Ended(do_work(order, outbox))
    except Exception as error:
        return Failed(sendable(error))
    finally:
        warnings.showwarning = before
        outbox.flush()


def do_work(order: RayOrder, outbox: Outbox) -> Any:
    """Do the work in its folder, or in a temporary copy."""
    work = cloudpickle.loads(order.work)
    if order.folder is None:
        return retried(lambda: work(SentProgress(outbox)), patience=LOCKED if order.attempt else 0.0)
    with tempfile.TemporaryDirectory(prefix="fedmim-") as name:
        folder = Path(name) / "run"
        folder.mkdir()
        order.folder.write(folder)
        watch = FolderWatch(folder, outbox.send)
        try:
            return work.moved(folder)(CopiedProgress(outbox, watch))
        finally:
            watch.look(all=True)


def retried(do: Callable[[], Any], patience: float) -> Any:
    """Call `do`; while the folder is locked, by a process that is lost, try again."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return do()
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)


def use_data(source: AnySource, data: Packed) -> None:
    """Use the data set in the object store, unless this process uses it already."""
    global _source
    from fedmim.simulation.packing import unpack

    if source != _source:
        use_shared(source, unpack(data))
        _source = source


class Outbox:
    """Messages to the driver, in batches."""

    def __init__(self, put: Callable[[list[Any]], None]) -> None:
        self._put = put
        self._waiting: list[Any] = []
        self._last = 0.0

    def send(self, message: Any) -> None:
        """Send a message, soon. Copies of a folder are sent at once."""
        self._waiting.append(message)
        if isinstance(message, ChangedFiles) or time.monotonic() - self._last >= EVERY:
            self.flush()

    def flush(self) -> None:
        """Send what is waiting."""
        if self._waiting:
            self._put(self._waiting)
            self._waiting = []
        self._last = time.monotonic()


class CopiedProgress(SentProgress):
    """Sends the progress, and a copy of the folder after each checkpoint."""

    def __init__(self, outbox: Outbox, watch: FolderWatch) -> None:
        super().__init__(outbox)
        self._watch = watch

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""
        super().record(run, record)
        self._watch.look()
