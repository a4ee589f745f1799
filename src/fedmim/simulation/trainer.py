"""What a worker does: sets runs up, and trains one client after the other until its connection is closed."""

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


class CountingModel(FlatModel):
    """A model that counts its gradients where the server sees them, which shows that the worker does not hang."""

    def count_in(self, gradients: Tensor) -> None:
        """Count in this tensor of one element."""
        self._gradients = gradients.numpy()

    def loss_and_gradient(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a minibatch at w, and its gradient (d,)."""
        result = super().loss_and_gradient(w, x, y)
        self._gradients += 1
        return result


class Trainer:
    """A run in a worker."""

    def __init__(self, memory: SharedMemory, content: SetUp, worker: int) -> None:
        self.algorithm, self.task, self.settings, device, wire, spans = memory.load(content.content)
        vectors, buffers, gradients = map(memory.tensor, spans)
        self.shared = SharedVectors(wire, vectors, buffers)
        self.device = device_of(worker, device, torch.cuda.device_count())
        self.model = CountingModel(self.task.model, self.task.loss, self.device)
        self.model.count_in(gradients[worker : worker + 1])

    def train(self, job: Job) -> tuple[float, float]:
        """Train one client; its vectors go to its place, its loss and K are returned."""
        place, down = self.shared.place(job.position), on(self.device, self.shared.down)
        clients, buffers, slots = [job.client], self.shared.buffers.to(self.device), on(self.device, place.slots)
        work = Work(
            self.task, self.settings, job.round, job.lr, clients, down, buffers, lambda _: slots, lambda _: job.first
        )
        (reply,) = serial(self.algorithm, self.model, work)
        for mine, theirs in ((reply.upload, place.upload), (reply.slots, place.slots)):
            for name, vector in mine.items():
                theirs[name].copy_(vector)
        place.buffers.copy_(reply.buffers)
        return reply.loss, reply.steps


def device_of(worker: int, device: str, visible: int) -> torch.device:
    """Where a worker trains: with device="cuda" the workers go over the visible GPUs in turn."""
    return torch.device("cuda", worker % visible) if device == "cuda" else torch.device(device)


def serve(connection: socket.socket, worker: int) -> None:
    """Answer a job with the client's loss and K, a run that was set up with None, and either with a failure."""
    torch.set_num_threads(1)
    line = Line(connection)
    trainers: dict[int, Trainer] = {}
    while True:
        try:
            message, descriptors = line.receive()
            if isinstance(message, Forget):
                for run in message.runs:
                    trainers.pop(run, None)
                gc.collect()  # models are in cycles of references, and hold the run's memory until they are found
            elif isinstance(message, SetUp):
                line.send(set_up(trainers, message, descriptors, worker))
            else:
                line.send(train(trainers, message))
        except (EOFError, ConnectionError):  # the server has ended
            return


def set_up(trainers: dict[int, Trainer], message: SetUp, descriptors: list[int], worker: int) -> WorkerFailure | None:
    """Set a run up."""
    memory = SharedMemory(*descriptors)
    try:
        trainers[message.run] = Trainer(memory, message, worker)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".strip().replace("\n", " ")
        wrong = UserError(f"engine: the run cannot be set up in a worker process ({reason}); use serial")
        return WorkerFailure(wrong, traceback.format_exc())
    finally:
        memory.close()
    return None


def train(trainers: dict[int, Trainer], job: Job) -> tuple[float, float] | WorkerFailure:
    """Train a client."""
    try:
        return trainers[job.run].train(job)
    except Exception as error:
        return WorkerFailure(sendable(error), traceback.format_exc())


def sendable(error: Exception) -> Exception:
    """The error, or if it cannot be pickled, another that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        plain = RuntimeError(repr(error))
        for note in getattr(error, "__notes__", []):
            plain.add_note(note)
        return plain
    return error
