"""The messages between the server and its workers, over a socket."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it imports torch
    from fedmim.simulation.shared import Span

_HEAD = struct.Struct("!Q")  # the length of the message


@dataclass(frozen=True)
class SetUp:
    """A run to set up; sent with the descriptor of its shared memory."""

    run: int
    content: Span

    def __str__(self) -> str:
        return "setting up the run"


@dataclass(frozen=True)
class Job:
    """One client to train."""

    run: int
    position: int  # among the clients of the round
    round: int
    lr: float
    client: int
    first: bool  # whether the client has no vectors from an earlier round
    steps: int = 0  # K; 0: that of the settings

    def __str__(self) -> str:
        return f"training client {self.client} in round {self.round + 1}"


@dataclass(frozen=True)
class Forget:
    """Runs that have ended; the worker sends no answer."""

    runs: list[int]


@dataclass(frozen=True)
class WorkerFailure:
    """An exception in a worker, with its traceback as text."""

    error: Exception
    text: str


class Line:
    """One end of the connection between the server and a worker."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        """The file descriptor to wait on."""
        return self._end.fileno()

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a message, with open file descriptors for the other process."""
        content = pickle.dumps(message)
        content = _HEAD.pack(len(content)) + content
        sent = socket.send_fds(self._end, [content], descriptors) if descriptors else 0
        self._end.sendall(content[sent:])

    def receive(self) -> tuple[Any, list[int]]:
        """The next message and the descriptor sent with it; raises EOFError if the other end is closed."""
        head, descriptors, *_ = socket.recv_fds(self._end, _HEAD.size, 1)
        head += self._read(_HEAD.size - len(head)) if head else b""
        if not head:
            raise EOFError
        return pickle.loads(self._read(*_HEAD.unpack(head))), list(descriptors)

    def _read(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            part = self._end.recv(size - len(content))
            if not part:
                raise EOFError
            content += part
        return bytes(content)

    def close(self) -> None:
        """Close this end; the other process then ends its work."""
        self._end.close()
