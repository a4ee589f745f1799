"""Shared memory: what is shared is the same, has no name, and is gone with the run or the program, however it ends."""

import gc
import os
import signal
from pathlib import Path

import pytest
import torch
from problems import classification
from worker_runs import assert_same_bits, finished, group_members, protocol, script, soon, state_of

import fedmim
from fedmim.simulation.pool import Pool
from fedmim.simulation.shared import SMALLEST, SharedLayout, SharedMemory

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at processes in /proc")

# A program that never ends by itself. Its workers say so when they have begun: to be started, to be set up, to train.
ENDLESS = """
import os, sys, time
from pathlib import Path
import torch, fedmim
from torch import nn

def begun(stage):
    Path(f"begun-{stage}-{os.getpid()}").touch()
    while True:
        time.sleep(0.1)

class Net(nn.Linear):
    def __setstate__(self, state):
        self.__dict__.update(state)
        if STAGE == "set-up" and os.getpid() != PROGRAM:
            begun("set-up")

def loss(outputs, targets):
    if os.getpid() != PROGRAM:
        begun("training")
    return nn.functional.cross_entropy(outputs, targets)

clients = [(torch.randn(5000, 4), torch.randint(0, 3, (5000,))) for _ in range(3)]
task = fedmim.Task(Net(4, 3), clients, clients[0], loss=loss)
try:
    settings = fedmim.Settings(rounds=2, participation=1.0)
    fedmim.simulate(fedmim.FedMIM(), task, settings, fedmim.Execution(engine="processes", workers=2))
except KeyboardInterrupt:
    sys.exit(130)
"""


def maps(process):
    """The memory of a process, a line for each piece, with the name of its file if it has one."""
    return Path(f"/proc/{process}/maps").read_text().splitlines()


def program(stage, folder):
    """The program, when its workers have come to this stage."""
    head = f"import os\nSTAGE, PROGRAM = {stage!r}, os.getpid()\n"
    process = script(head + ENDLESS, folder)
    if stage == "start":  # they import
        assert soon(lambda: len(group_members(process.pid)) == 3)
    else:
        assert soon(lambda: len(list(folder.glob(f"begun-{stage}-*"))) == 2)
    return process


@NEEDS_PROC
@pytest.mark.parametrize("stage", ["start", "set-up", "training"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_that_ends_leaves_no_process_no_memory_and_no_traceback(stage, number, tmp_path):
    with program(stage, tmp_path) as process:
        named = [line for member in group_members(process.pid) for line in maps(member) if "/dev/shm/" in line]
        os.killpg(process.pid, number)
        assert process.wait(timeout=60) == (130 if number == signal.SIGINT else -number)
        assert soon(lambda: not group_members(process.pid))
        assert process.stderr.read() == ""
    assert not named  # shared memory with a name would have stayed


@NEEDS_PROC
def test_workers_that_are_stopped_end_with_their_program(tmp_path):
    with program("training", tmp_path) as process:
        workers = group_members(process.pid) - {process.pid}
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        assert soon(lambda: all(state_of(worker) == "T" for worker in workers))  # a busy one stops a little later
        process.kill()
        assert soon(lambda: not group_members(process.pid))


def mapped(process):
    return sum("memfd:fedmim" in line for line in maps(process))


def descriptors(process):
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


@NEEDS_PROC
def test_a_run_that_has_ended_holds_no_memory_and_no_descriptor():
    task = classification()
    fedmim.simulate(fedmim.FedAvg(), task, *protocol(rounds=1))
    processes = [os.getpid(), *(worker.process.pid for worker in Pool.of(2).workers.values())]
    assert soon(lambda: not any(map(mapped, processes)))
    before = list(map(descriptors, processes))
    for _ in range(5):
        fedmim.simulate(fedmim.FedAvg(), task, *protocol(rounds=2))
    assert soon(lambda: not any(map(mapped, processes)))
    assert list(map(descriptors, processes)) == before


@NEEDS_PROC
def test_a_run_that_was_abandoned_is_forgotten_in_the_next_round_of_another():
    task = classification()
    other, run = (fedmim.rounds(fedmim.FedAvg(), task, *protocol()) for _ in range(2))
    next(other)
    Pool.of(2).drain()  # both workers have set it up
    workers = [worker.process.pid for worker in Pool.of(2).workers.values()]
    alone = list(map(mapped, workers))
    next(run)
    assert list(map(mapped, workers)) > alone
    del run
    gc.collect()
    next(other)
    assert soon(lambda: list(map(mapped, workers)) == alone)


def test_without_files_in_memory_an_unnamed_temporary_file_serves(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = classification()
    run = fedmim.rounds(fedmim.FedAvg(), task, *protocol())
    next(run)
    assert not list(tmp_path.iterdir())
    list(run)
    expected, _ = finished(fedmim.FedAvg(), task, engine="serial")
    assert torch.equal(run.params, expected.params)


def shared_and_loaded(value):
    memory, content = SharedLayout().share(value)
    return memory, SharedMemory(os.dup(memory.descriptor)).load(content)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8, torch.bool])
def test_large_tensors_of_any_layout_arrive_with_their_values(dtype):
    tensor = (torch.arange(4 * SMALLEST).view(2, -1) % 251).to(dtype).t()
    _, loaded = shared_and_loaded({"large": tensor, "small": tensor[:3], "none": tensor[:0]})
    assert all(torch.equal(*pair) for pair in ((loaded["large"], tensor), (loaded["small"], tensor[:3])))
    assert loaded["none"].shape == (0, 2)


def test_a_tensor_that_is_shared_twice_is_one_and_seen_by_both_sides():
    tensor = torch.zeros(SMALLEST)
    memory, (first, again) = shared_and_loaded([tensor, tensor])
    assert first is again
    other = SharedMemory(os.dup(memory.descriptor))
    span = SharedLayout().zeros((SMALLEST,), torch.float32)  # the first place
    first[5] = 7.0
    assert other.tensor(span)[5] == 7.0


def test_two_runs_at_once_have_memory_of_their_own():
    task = classification()
    runs = [fedmim.rounds(method, task, *protocol()) for method in (fedmim.Scaffold(), fedmim.Scaffold())]
    for _ in zip(*runs, strict=True):
        pass
    assert torch.equal(runs[0].params, runs[1].params)
    assert_same_bits(finished(fedmim.Scaffold(), task), finished(fedmim.Scaffold(), task, engine="serial"))
