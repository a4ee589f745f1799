"""A job process: `python -m fedmim.experiments.job DESCRIPTOR`, started by `JobPool`.

It uses one core. It ends when the command ends, even if that is killed.
"""

from __future__ import annotations

import gc
import socket
import sys
import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import cloudpickle

from fedmim.signals import held, terminable
from fedmim.simulation.messages import Line
from fedmim.simulation.worker import end_with

if TYPE_CHECKING:
    from fedmim.experiments.run import Run
    from fedmim.simulation.record import Record


class Sender(Protocol):
    """Sends messages to the command."""

    def send(self, message: Any) -> None:
        """Send a message."""


class SentProgress:
    """A display that sends everything to the command."""

    def __init__(self, line: Sender) -> None:
        self._line = line
        self._last: tuple[Run, bytes] | None = None  # to pickle each run once

    def record(self, run: Run, record: Record) -> None:
        """A round has ended."""
        self._send(run, record)

    def skip(self, run: Run) -> None:
        """A run is already finished, or stops early."""
        self._send(run, None)

    def _send(self, run: Run, record: Record | None) -> None:
        from fedmim.experiments.job_messages import Progress

        if self._last is None or self._last[0] is not run:
            self._last = run, cloudpickle.dumps(run)
        with held():  # an interrupt must not cut off a message
            self._line.send(Progress(self._last[1], record))


def do_jobs(line: Line) -> None:
    """Do the work that arrives, one piece after the other, until the connection is closed or SIGTERM arrives."""
    from fedmim.experiments.job_messages import Start, Told
    from fedmim.experiments.sources import use_shared
    from fedmim.simulation.engines import use_one_core
    from fedmim.simulation.shared import SharedMemory

    use_one_core()
    warm_up()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        with held():
            line.send(Told(str(message)))

    warnings.showwarning = show
    while True:
        message, descriptors = line.receive()
        if isinstance(message, Start):
            answer = do(message.work, SentProgress(line))
            with held():
                line.send(answer)
        else:
            memory = SharedMemory(*descriptors)
            use_shared(message.source, memory.load(message.content))
            memory.close()
            gc.collect()  # models are in reference cycles and would keep the data set before


def warm_up() -> None:
    """Import what training imports late, while the command still sets up the runs."""
    import torch

    import fedmim.experiments.run_folder
    import fedmim.simulation.loop  # noqa: F401
    from fedmim.models import FlatModel

    with torch.random.fork_rng():
        model = FlatModel(torch.nn.Linear(1, 2), torch.nn.functional.cross_entropy)
        model.stacked_loss_and_gradient(model.params[None], torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.long))


def do(work: bytes, progress: SentProgress) -> Any:
    """Do a piece of work; what the command is told about how it ended."""
    from fedmim.experiments.works import Ended, Failed
    from fedmim.simulation.trainer import sendable

    try:
        return Ended(cloudpickle.loads(work)(progress))
    except Exception as error:
        return Failed(sendable(error))


if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=end_with, args=[connection.fileno()], daemon=True).start()
    with suppress(KeyboardInterrupt, EOFError, ConnectionError), terminable():
        do_jobs(Line(connection))
