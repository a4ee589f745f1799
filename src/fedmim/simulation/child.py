"""Processes that this program starts: each has a connection to it and ends with it, even if the program is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fedmim.simulation.messages import Line

# Keep freed memory in the process: by default glibc returns the large temporaries of every step to the kernel and gets
# them back with page faults.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
TALK = 30.0  # seconds for a message; messages are short and read at once
GRACE = 2.0  # seconds for a process to exit by itself


@dataclass(eq=False)
class Child:
    """A process and the connection to it."""

    process: subprocess.Popen[bytes]
    line: Line


def start_child(
    module: str, *words: str, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], Line]:
    """Start `python -m module DESCRIPTOR WORDS...`, with the descriptor of its end of the connection."""
    ours, theirs = socket.socketpair()
    ours.settimeout(TALK)
    # Not with multiprocessing, which would run the user's script again in every process.
    command = [sys.executable, "-m", module, str(theirs.fileno()), *words]
    path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)  # for the user's own modules
    variables = {**os.environ, **ALLOCATOR, **(environment or {}), "PYTHONPATH": path}
    with theirs, _deaf():
        # In a separate process group, so that signals to the program's group do not reach it.
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=variables, process_group=0)
    return process, Line(ours)


@contextmanager
def _deaf() -> Iterator[None]:
    """Block SIGINT, so that a process started here never receives it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_children(children: Sequence[Child], patience: float) -> None:
    """End processes: close their connections, then kill those that do not exit in time."""
    for child in children:
        child.line.close()
    deadline = time.monotonic() + patience
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
    for child in children:
        child.process.kill()
        with suppress(subprocess.TimeoutExpired):  # a process that is stuck in the kernel does not end
            child.process.wait(timeout=GRACE)


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """How a process has ended, for messages."""
    code = process.returncode
    if code is None:
        return "stopped answering"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
