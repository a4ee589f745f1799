"""The actors of the ray engine: one RayTrainer per core or GPU share, and one RayAdder per node."""

from __future__ import annotations

import os
import platform
import socket
import traceback
from dataclasses import dataclass
from typing import Any

import torch

import fedmim
from fedmim.algorithms import Algorithm
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.engines import serial
from fedmim.simulation.mean import PartialMean, StreamingMean
from fedmim.simulation.messages import WorkerFailure
from fedmim.simulation.packing import Packed, pack_value, unpack
from fedmim.simulation.server import as_received, everything, is_finite
from fedmim.simulation.settings import Settings
from fedmim.simulation.task import Task
from fedmim.simulation.trainer import sendable
from fedmim.simulation.training import Work, on

CPU = torch.device("cpu")


@dataclass(frozen=True)
class About:
    """Where an actor runs, and with which versions."""

    node: str  # Ray's id of the node
    host: str
    versions: tuple[str, str]  # of fedmim and torch

    @classmethod
    def of_this_process(cls, node: str = "") -> About:
        """Of this process."""
        return cls(node, f"{socket.gethostname()} (Python {platform.python_version()})", versions())


def versions() -> tuple[str, str]:
    """The versions that must be the same on all nodes."""
    return fedmim.__version__, torch.__version__


@dataclass(frozen=True)
class ClientJob:
    """One client to train."""

    round: int
    lr: float
    client: int
    first: bool  # whether the client has no vectors from an earlier round
    for_server: bool  # whether the server gets the upload itself, and not only the sum
    steps: int = 0  # K; 0: that of the settings


@dataclass(frozen=True)
class Trained:
    """The result of a client without its vectors."""

    accepted: bool
    loss: float
    steps: float
    bytes_up: int
    keeps: bool  # whether the client keeps vectors


@dataclass(frozen=True)
class RunContent:
    """A run, as it is sent to the actors."""

    algorithm: Algorithm
    task: Task
    settings: Settings
    device: str


Replied = tuple[Trained | WorkerFailure, Packed | None, Packed | None]  # result, upload, kept vectors


class RayTrainer:
    """Trains clients, one at a time. The run that it trained last stays set up."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._run = -1
        self._content: RunContent
        self._model: FlatModel

    def about(self) -> About:
        """Where this actor runs."""
        import ray

        return About.of_this_process(ray.get_runtime_context().get_node_id())

    def pid(self) -> int:
        """The process of this actor."""
        return os.getpid()

    def train(self, run: int, content: list[Any], round: Packed, job: ClientJob, slots: Packed | None) -> Replied:
        """Train one client. `content` is a list with the reference to the packed RunContent."""
        try:
            self._set_up(run, content)
            return self._train(round, job, slots)
        except Exception as error:
            return WorkerFailure(sendable(error), traceback.format_exc()), None, None

    def _set_up(self, run: int, content: list[Any]) -> None:
        import ray

        if run == self._run:
            return
        try:
            self._content = unpack(ray.get(content[0]))
            device = torch.device(self._content.device)
            self._model = FlatModel(self._content.task.model, self._content.task.loss, device)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".strip().replace("\n", " ")
            raise UserError(f"engine: cannot set up the run on a node of the cluster ({reason})") from error
        self._run = run

    def _train(self, round: Packed, job: ClientJob, slots: Packed | None) -> Replied:
        content, algorithm, model = self._content, self._content.algorithm, self._model
        device = model.params.device
        down, buffers, _ = unpack(round)
        down, buffers = on(device, down), buffers.to(device)
        zeros = dict.fromkeys(algorithm.client_slots, torch.zeros_like(model.params))
        kept = zeros if slots is None else on(device, unpack(slots))
        work = Work(
            content.task,
            content.settings,
            job.round,
            job.lr,
            [job.client],
            down,
            buffers,
            lambda _: kept,
            lambda _: job.first,
            {job.client: job.steps},
        )
        (reply,) = serial(algorithm, model, work)
        bytes_up = algorithm.upload_bytes(reply.upload) + model.buffer_bytes
        if not job.for_server:
            reply = as_received(algorithm, reply, down, job.lr)
        accepted = is_finite(reply)
        trained = Trained(accepted, reply.loss, reply.steps, bytes_up, bool(reply.slots))
        upload = pack_value(on(CPU, everything(reply))) if accepted or job.for_server else None
        return trained, upload, pack_value(on(CPU, reply.slots)) if reply.slots else None


class RayAdder:
    """Sums the uploads of one or more parts of a round on its node, and holds copies of client state."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._round = -1
        self._parts: dict[int, PartialMean] = {}

    def add(self, round: int, part: int, start: int, weight: float, content: Packed, upload: Packed | None) -> None:
        """Add the next client to a part, which begins at position `start`; None if it is rejected."""
        if round != self._round:
            self._round, self._parts = round, {}
        if part not in self._parts:
            _, _, reference = unpack(content)
            self._parts[part] = PartialMean(reference, start)
        # A client that is held, see PartialMean, must not keep memory of the object store.
        vectors = None if upload is None else unpack(upload, copy=self._parts[part].holds_next)
        self._parts[part].add(weight, vectors)

    def fold(self, part: int, clients: int, content: Packed, before: Packed | None) -> Packed:
        """The mean of all clients up to the end of a part of this many; `before` is the mean up to its start."""
        if (found := self._parts[part].clients) != clients:
            raise LookupError(f"{found} of {clients} clients were added; the uploads of the others are lost")
        _, _, reference = unpack(content)
        mean = StreamingMean({}) if before is None else unpack(before, copy=True)
        mean.reference = reference
        self._parts[part].continue_mean(mean)
        mean.reference = {}
        return pack_value(mean)

    def has(self, part: int) -> bool:
        """Whether this part is here; it is lost with the process."""
        return part in self._parts

    def keep(self, slots: Packed) -> Packed:
        """A copy of a client's vectors on this node."""
        return slots
