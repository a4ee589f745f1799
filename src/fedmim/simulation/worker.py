"""A worker process: sets a run up, then trains one client after the other until its connection is closed."""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch

from fedmim.models import FlatModel
from fedmim.simulation.engines import serial
from fedmim.simulation.processes import Job, SharedVectors, WorkerFailure
from fedmim.simulation.shared import open_shared
from fedmim.simulation.training import Work, on


class Trainer:
    """A run in a worker."""

    def __init__(self, payload: tuple[Any, ...], worker: int) -> None:
        self.algorithm, self.task, self.settings, device, names, vectors, buffers = payload
        self.shared = SharedVectors(names, open_shared(*vectors), open_shared(*buffers))
        self.device = device_of(worker, device, torch.cuda.device_count())
        self.model = FlatModel(self.task.model, self.task.loss, self.device)

    def train(self, job: Job) -> tuple[int, float]:
        """Train one client; its vectors go to its place, its position and loss are returned."""
        place, down = self.shared.place(job.position), on(self.device, self.shared.down)
        clients, buffers, slots = [job.client], self.shared.buffers.to(self.device), on(self.device, place.slots)
        work = Work(self.task, self.settings, job.round, job.lr, clients, down, buffers, lambda _: slots)
        (reply,) = serial(self.algorithm, self.model, work)
        for mine, theirs in ((reply.upload, place.upload), (reply.slots, place.slots)):
            for name, vector in mine.items():
                theirs[name].copy_(vector)
        place.buffers.copy_(reply.buffers)
        return job.position, reply.loss


def device_of(worker: int, device: str, visible: int) -> torch.device:
    """Where a worker trains: with device="cuda" the workers go over the visible GPUs in turn."""
    return torch.device("cuda", worker % visible) if device == "cuda" else torch.device(device)


def serve(line: Connection, worker: int) -> None:
    """Answer a job with its position and loss, a run that was set up with None, and either with a failure."""
    trainers: dict[int, Trainer] = {}
    while True:
        try:
            message = line.recv_bytes()
        except (EOFError, ConnectionError):  # the server has ended, by itself or by a kill
            return
        answer: object = None
        try:
            content = pickle.loads(message)
            if isinstance(content, Job):
                answer = trainers[content.run].train(content)
            else:
                for run in content.forget:
                    trainers.pop(run, None)
                trainers[content.run] = Trainer(content.content, worker)
        except Exception as error:
            answer = WorkerFailure(error, traceback.format_exc())
        try:
            line.send(answer)
        except ConnectionError:
            return
        except Exception:  # an exception of the user's that cannot be pickled
            assert isinstance(answer, WorkerFailure)
            line.send(WorkerFailure(RuntimeError(repr(answer.error)), answer.text))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the server's to handle
    torch.set_num_threads(1)
    serve(Connection(int(sys.argv[1])), worker=int(sys.argv[2]))
