"""Engines: how the clients of a round are executed.

All give the same results: serial, processes and ray bit for bit, vectorised up to rounding.

| engine     | what it does                                  | `auto` picks it for                              |
|------------|-----------------------------------------------|--------------------------------------------------|
| vectorised | a stack of clients, one batched call per step | models with weights only in nn.Linear layers,    |
|            |                                               | without buffers or random layers                 |
| processes  | one single-threaded process per core, or with | other models on several cores or GPUs, if serial |
|            | device="cuda" one per visible GPU             | training would take over 20 s                    |
| serial     | one client after the other                    | everything else                                  |
| ray        | one process per core or GPU of a Ray cluster  | nothing                                          |
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from fedmim.algorithms import Algorithm, Vectors
from fedmim.cores import cores
from fedmim.data import Clients, LiveData
from fedmim.errors import UserError
from fedmim.memory import check_memory
from fedmim.models import FlatModel
from fedmim.simulation.batches import gather, own_samples
from fedmim.simulation.client_state import ClientState
from fedmim.simulation.mean import StreamingMean
from fedmim.simulation.processes import ProcessEngine
from fedmim.simulation.randomness import key
from fedmim.simulation.samples import Samples, to_device
from fedmim.simulation.server import Outcome
from fedmim.simulation.settings import Engine, Execution, Settings
from fedmim.simulation.task import Task
from fedmim.simulation.training import Reply, SingleClient, Stack, Work, one_thread, run_local_steps
from fedmim.structure import each

WORTH_PROCESSES = 20.0  # seconds of training; starting the workers takes a few seconds
WORKER_BYTES = 200 << 20  # minimum size of a worker process with PyTorch
STACK_ELEMENTS = 1 << 24  # most parameters in a stack of clients

Execute = Callable[[Algorithm, FlatModel, Work], Iterator[Reply]]


@runtime_checkable
class Summing(Protocol):
    """An engine that can sum the uploads itself."""

    def aggregate(
        self, algorithm: Algorithm, work: Work, reference: Vectors, sizes: Mapping[int, int], clients: ClientState
    ) -> tuple[StreamingMean, list[Outcome]]:
        """Train a round's clients. Returns the mean of their uploads, and the rest of each reply, in order."""


def summing(engine: object) -> Summing | None:
    """The engine, if it can sum the uploads itself."""
    return engine if isinstance(engine, Summing) else None


_one_core = False  # whether other processes use the other cores


def use_one_core() -> None:
    """From now on this process uses one thread and no worker processes. `processes` becomes `serial`: the same bits."""
    global _one_core
    _one_core = True
    torch.set_num_threads(1)


def serial(algorithm: Algorithm, model: FlatModel, work: Work) -> Iterator[Reply]:
    """One client after the other."""
    model.module.train()
    for client in work.clients:
        with naming(f"client {work.task.name(client)} failed in round {work.round + 1}"):
            torch.manual_seed(key("layers", work.settings.seed, work.round, client))  # for random layers
            model.buffers = work.buffers
            local = SingleClient(algorithm, model, work, client)
            w = run_local_steps(algorithm, local, work.settings)
            upload, kept = algorithm.finish(w, local)
        yield Reply(client, upload, kept, model.buffers, local.loss().item(), local.count)


def vectorised(algorithm: Algorithm, model: FlatModel, work: Work) -> Iterator[Reply]:
    """Stacks of clients, with one batched call per step and stack."""
    model.module.train()
    most = max(1, STACK_ELEMENTS // len(model.params))
    for start in range(0, len(work.clients), most):
        ids = work.clients[start : start + most]
        with naming(f"one of the clients {', '.join(map(work.task.name, ids))} failed in round {work.round + 1}"):
            stack = Stack(algorithm, model, work, ids)
            w = run_local_steps(algorithm, stack, work.settings)
            upload, kept = algorithm.finish(w, stack)
            losses = stack.loss().tolist()
        for row, client in enumerate(ids):
            yield Reply(client, _row(upload, row), _row(kept, row), work.buffers, losses[row], stack.count[row])


def _row(vectors: Vectors, row: int) -> Vectors:
    return {name: vector[row] if vector.dim() == 2 else vector for name, vector in vectors.items()}


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Add to an error what failed."""
    try:
        yield
    except Exception as error:
        error.add_note(what)
        raise


def choose(
    algorithm: Algorithm, task: Task, settings: Settings, execution: Execution, model: FlatModel
) -> tuple[Engine, Execute]:
    """Name and function of the requested engine; auto picks one by model and amount of work."""
    check_steps(settings, task)
    device = model.params.device
    workers = execution.workers or (torch.cuda.device_count() if device.type == "cuda" else cores())
    workers = min(workers, settings.active(len(task.clients)))  # more would be idle
    processes = partial(ProcessEngine, algorithm, model, execution.device, workers)
    if execution.engine == "ray":
        from fedmim.simulation.ray_engine import RayEngine  # needs an optional dependency

        return "ray", RayEngine(algorithm, model, execution)
    if execution.engine == "serial" or (execution.engine == "processes" and _one_core):
        return "serial", serial
    if execution.engine == "processes":
        if device.type not in ("cpu", "cuda"):
            raise UserError(f"engine: processes supports only CPUs and CUDA devices; use serial on {execution.device}")
        check_memory(workers * WORKER_BYTES, f"workers: {workers:,} processes", "lower --workers")
        return "processes", processes()
    obstacle = obstacle_to_vectorising(task, model)
    if execution.engine == "vectorised" and obstacle:
        raise UserError(f"engine: vectorised cannot train this model: {obstacle}; use serial or auto")
    # A stack of convolutional networks becomes grouped convolutions, which are slower than serial on a CPU.
    if execution.engine == "vectorised" or (not obstacle and only_matrix_products(model.module)):
        return "vectorised", vectorised
    several = workers > 1 and not _one_core and execution.device in ("cpu", "cuda")
    if several and serial_seconds(algorithm, settings, task, model) > WORTH_PROCESSES:
        return "processes", processes()
    return "serial", serial


def check_steps(settings: Settings, task: Task) -> None:
    """Reject more local steps than fit in memory: a round lists the indices of all minibatches of a client."""
    samples = max(task.clients.sizes) if isinstance(task.clients, Clients) else 1  # others may be slow to access
    name = "local_steps" if settings.local_steps else "local_epochs"
    steps = settings.steps(samples, max(1.0, settings.local_work.most))
    indices = 8 * min(samples, settings.batch_size or samples)
    check_memory(steps * (indices + 200), f"{name}: {steps:,} local steps per client", f"lower {name}")


def check_device(name: str) -> torch.device:
    """The device of this name; raise UserError if it is not available."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device).equal(torch.empty(0, device=device))  # fails for "meta", which computes nothing
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"device: {name!r} is not available; use cpu") from error
    return device


def serial_seconds(algorithm: Algorithm, settings: Settings, task: Task, model: FlatModel) -> float:
    """Estimated training time of the serial engine for the whole run, from the time of one step."""
    samples = task.size(0)
    steps = settings.rounds * settings.active(len(task.clients)) * settings.steps(samples) * settings.local_work.mean
    size = min(samples, settings.batch_size or samples)
    known = _step_seconds.setdefault(task.model, {})
    if (size, model.params.device) not in known:
        own = own_samples(task, 0, settings.seed, 0, torch.device("cpu"))
        batch = gather(replace(task, augment=None), own, [torch.arange(size)], [])
        known[size, model.params.device] = _time_of_step(model, batch)
    return steps * algorithm.gradients * known[size, model.params.device]


# Of one gradient, by batch size and device. The methods of a comparison have the same model.
_step_seconds: WeakKeyDictionary[nn.Module, dict[tuple[int, torch.device], float]] = WeakKeyDictionary()


def _time_of_step(model: FlatModel, batch: tuple[Tensor, Tensor]) -> float:
    buffers = model.buffers
    model.module.train()
    try:
        with one_thread(), torch.random.fork_rng():
            model.loss_and_gradient(model.params, *batch)
            begin = time.perf_counter()
            model.loss_and_gradient(model.params, *batch)
            return time.perf_counter() - begin
    except Exception:  # the engine will raise it again and name the client
        return 0.0
    finally:
        model.buffers = buffers


def only_matrix_products(module: nn.Module) -> bool:
    """Whether all trainable weights belong to linear layers."""
    owners = (part for part in module.modules() if any(True for _ in part.parameters(recurse=False)))
    return all(isinstance(part, nn.Linear) for part in owners)


def _alike(task: Task) -> bool:
    """Whether the samples of all clients in memory have the same structure, shapes and types."""
    if not isinstance(task.clients, list | tuple):
        return True  # one data set, or slow to access
    kinds = (_kind(task.data(client)) for client in range(len(task.clients)))
    first = next(kinds)
    return all(kind == first for kind in kinds)


def _kind(data: Samples | LiveData) -> Any:
    if isinstance(data, LiveData):
        return None
    parts, structure = tree_flatten(data)
    return structure, [(part.shape[1:], part.dtype) for part in parts]


def obstacle_to_vectorising(task: Task, model: FlatModel) -> str | None:
    """Why the model cannot be trained in a stack, found with two samples; None if it can."""
    if len(model.buffers):
        return "it has buffers"
    data = task.data(0)
    if isinstance(data, LiveData):
        return "its data is live"
    if not _alike(task):
        return "its clients have samples of different shapes"
    x, y = (each(lambda part: part[:2], side) for side in to_device(data, model.params.device))
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # Operations that vmap cannot batch are done one by one, which is slower than the serial engine.
            warnings.filterwarnings("error", message="There is a performance drop")
            x = x if task.prepare is None else task.prepare(x)
            model.module.train()
            x, y = (each(lambda part: part.unsqueeze(0), side) for side in (x, y))
            model.stacked_loss_and_gradient(model.params.unsqueeze(0), x, y)
    except UserError:
        raise
    except Exception as error:  # a user's module or loss can fail in any way
        reason = str(error).strip().split("\n")[0]
        _, missing, operation = reason.partition("batching rule for ")
        return f"vmap does not support it ({'no ' + missing + operation.partition('. ')[0] if missing else reason})"
    return None
