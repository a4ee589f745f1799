"""The work of a worker process: sets up runs and trains clients until its connection is closed."""

from __future__ import annotations

import gc
import pickle
import socket
import traceback

import torch
from torch import Tensor

from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.engines import serial
from fedmim.simulation.messages import Forget, Job, Line, SetUp, WorkerFailure
from fedmim.simulation.processes import SharedVectors
from fedmim.simulation.shared import SharedMemory
from fedmim.simulation.training import Work, on
from fedmim.structure import Structure


class CountingModel(FlatModel):
    """A model that counts its gradients in shared memory, which shows the server that the worker does not hang."""

    def count_in(self, gradients: Tensor) -> None:
        """Count in this tensor of one element."""
        self._gradients = gradients.numpy()

    def loss_and_gradient(self, w: Tensor, x: Structure, y: Structure) -> tuple[Tensor, Tensor]:
        """The loss of a minibatch at w, and its gradient (d,)."""
        result = super().loss_and_gradient(w, x, y)
        self._gradients += 1
        return result


class Trainer:
    """A run, set up in a worker."""

    def __init__(self, memory: SharedMemory, content: SetUp, worker: int) -> None:
        self.algorithm, self.task, self.settings, device, wire, spans = memory.load(content.content)
        vectors, buffers, gradients = map(memory.tensor, spans)
        self.shared = SharedVectors(wire, vectors, buffers)
        self.device = device_of(worker, device, torch.cuda.device_count())
        self.model = CountingModel(self.task.model, self.task.loss, self.device)
        self.model.count_in(gradients[worker : worker + 1])

    def train(self, job: Job) -> tuple[float, float]:
        """Train one client: write its vectors to its place, return its loss and K."""
        place, down = self.shared.place(job.position), on(self.device, self.shared.down)
        clients, buffers, slots = [job.client], self.shared.buffers.to(self.device), on(self.device, place.slots)
        work = Work(
            self.task,
            self.settings,
            job.round,
            job.lr,
            clients,
            down,
            buffers,
            lambda _: slots,
            lambda _: job.first,
            {job.client: job.steps},
        )
        (reply,) = serial(self.algorithm, self.model, work)
        for mine, theirs in ((reply.upload, place.upload), (reply.slots, place.slots)):
            for name, vector in mine.items():
                theirs[name].copy_(vector)
        place.buffers.copy_(reply.buffers)
        return reply.loss, reply.steps


def device_of(worker: int, device: str, visible: int) -> torch.device:
    """The device of a worker; with device="cuda" the workers are spread over the visible GPUs."""
    return torch.device("cuda", worker % visible) if device == "cuda" else torch.device(device)


def serve(connection: socket.socket, worker: int) -> None:
    """Answer a Job with the client's loss and K, a SetUp with None, and either with WorkerFailure on an error."""
    torch.set_num_threads(1)
    line = Line(connection)
    trainers: dict[int, Trainer] = {}
    while True:
        try:
            message, descriptors = line.receive()
            if isinstance(message, Forget):
                for run in message.runs:
                    trainers.pop(run, None)
                gc.collect()  # models are in reference cycles and would keep the run's memory
            elif isinstance(message, SetUp):
                line.send(set_up(trainers, message, descriptors, worker))
            else:
                line.send(train(trainers, message))
        except (EOFError, ConnectionError):  # the server has ended
            return


def set_up(trainers: dict[int, Trainer], message: SetUp, descriptors: list[int], worker: int) -> WorkerFailure | None:
    """Set up a run; None, or the failure."""
    memory = SharedMemory(*descriptors)
    try:
        trainers[message.run] = Trainer(memory, message, worker)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".strip().replace("\n", " ")
        wrong = UserError(f"engine: cannot set up the run in a worker process ({reason}); use serial")
        return WorkerFailure(wrong, traceback.format_exc())
    finally:
        memory.close()
    return None


def train(trainers: dict[int, Trainer], job: Job) -> tuple[float, float] | WorkerFailure:
    """Train a client; its loss and K, or the failure."""
    try:
        return trainers[job.run].train(job)
    except Exception as error:
        return WorkerFailure(sendable(error), traceback.format_exc())


def sendable(error: Exception) -> Exception:
    """The error, or if it cannot be pickled, a RuntimeError with the same text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        plain = RuntimeError(repr(error))
        for note in getattr(error, "__notes__", []):
            plain.add_note(note)
        return plain
    return error
