"""Runs in two worker processes, their bits, and programs that are ended while they train."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from problems import busy

import fedmim


def protocol(**overrides):
    return busy(**{"engine": "processes", "workers": 2} | overrides)


def finished(algorithm, task, **overrides):
    run = fedmim.rounds(algorithm, task, *protocol(**overrides))
    return run, [replace(record, seconds=0.0) for record in run]


def assert_same_bits(one, other, clients=7):
    (run, records), (other_run, other_records) = one, other
    assert records == other_records
    assert torch.equal(run.params, other_run.params)
    assert torch.equal(run.server.buffers, other_run.server.buffers)
    for name, slot in run.state.slots.items():
        assert torch.equal(slot, other_run.state.slots[name])
    for client in range(clients):
        for name, slot in run.server.clients.get(client).items():
            assert torch.equal(slot, other_run.server.clients.get(client)[name])


def state_of(process: int) -> str:
    """The letter of a process's state, T where it is stopped; "" for no process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def soon(fact) -> bool:
    """Whether something comes true within a minute."""
    deadline = time.monotonic() + 60
    while not fact() and time.monotonic() < deadline:
        time.sleep(0.02)
    return fact()


def group_members(group: int) -> set[int]:
    """The processes whose session is that of a program started with start_new_session."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == group and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


def heed() -> None:
    """In a new process: an interrupt reaches it, also where the tests themselves run deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def script(text: str, folder: Path) -> subprocess.Popen[str]:
    """A program in a session of its own, where all the processes that it starts can be found."""
    (folder / "script.py").write_text(text)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        preexec_fn=heed,
    )
