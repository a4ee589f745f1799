"""Local training: the loop of minibatch steps, for one client (d,) or a stack of clients (S, d)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, Local, Plan, Scalar, Vectors
from fedmim.algorithms.base import LocalView, first, first_scalar
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.batches import concatenated, gather, in_parts, own_samples, size_of
from fedmim.simulation.live import LiveSamples
from fedmim.simulation.randomness import client_generator, minibatches, upload_numbers
from fedmim.simulation.samples import Samples
from fedmim.simulation.settings import Settings
from fedmim.simulation.task import Task
from fedmim.structure import Structure, each, length, split

FULL_GRADIENT_BATCH = 1000  # samples per batch


@dataclass(frozen=True)
class Work:
    """The work of one round: the clients and what they receive."""

    task: Task
    settings: Settings
    round: int
    lr: float
    clients: Sequence[int]  # most local steps first, then most samples
    down: Vectors
    buffers: Tensor
    slots: Callable[[int], Vectors]  # vectors that a client keeps
    first: Callable[[int], bool]  # whether a client has none from an earlier round
    steps: Mapping[int, int] = field(default_factory=dict)  # K of clients for which it is not that of the settings

    def steps_of(self, client: int, samples: int) -> int:
        """K of a client with this many samples."""
        return self.steps.get(client) or self.settings.steps(samples)


@dataclass(frozen=True)
class Reply:
    """The reply of one client."""

    client: int
    upload: Vectors
    slots: Vectors
    buffers: Tensor
    loss: float
    steps: float  # K
    finite: bool = True  # False if vectors that the client stores itself are not finite


def run_local_steps(algorithm: Algorithm, local: SingleClient | Stack, settings: Settings) -> Tensor:
    """Take all local steps of a client or a stack of clients; return the local models, (d,) or (S, d)."""
    plan = with_copies(algorithm.plan(local), local.stacked)
    local.carry = plan.carry
    stepper = Stepper(algorithm, plan, settings.weight_decay, settings.clip_norm)
    for k, rows in enumerate(local.draw()):
        local.k = k
        if rows is None:
            stepper.step(local)
        else:  # only the first rows of the stack still train
            stepper.first(rows).step(Rows(local, rows))
    local.end()
    return plan.start


def with_copies(plan: Plan, stacked: int | None = None) -> Plan:
    """The plan with copies of the vectors that steps write to: (d,), or (S, d) for a stack of S clients."""

    def own(vector: Tensor) -> Tensor:
        return vector.clone() if stacked is None else vector.expand(stacked, -1).clone()

    return replace(plan, start=own(plan.start), carry={name: own(vector) for name, vector in plan.carry.items()})


class Stepper:
    """Takes the local steps of a plan in place, with weight decay and clipping, for all methods.

    The default step includes both in `keep` and `rate`, at no cost. A method that overrides `step` gets them in g.
    """

    def __init__(self, algorithm: Algorithm, plan: Plan, weight_decay: float, clip_norm: float | None) -> None:
        self.algorithm, self.weight_decay, self.clip_norm = algorithm, weight_decay, clip_norm
        self.own_step = algorithm.own_step
        self.plan = plan if self.own_step else plan.with_weight_decay(weight_decay)

    def first(self, rows: int) -> Stepper:
        """The stepper for the first rows of a stack."""
        part = copy(self)
        part.plan = self.plan.first(rows)
        return part

    def step(self, local: Local) -> None:
        """One local step, in place."""
        algorithm, plan, w = self.algorithm, self.plan, self.plan.start
        g = algorithm.gradient(w, local)
        if self.own_step:
            g = used_gradient(g, w, self.weight_decay, self.clip_norm)
        elif self.clip_norm is not None:
            plan = plan.scaled(clip_factor(g, self.clip_norm))
        moved = algorithm.step(w, g, plan)
        if moved is not w:
            w.copy_(moved)


def used_gradient(g: Tensor, w: Tensor, weight_decay: float, clip_norm: float | None) -> Tensor:
    """The gradient that a step uses: clipped, then with weight decay at w."""
    clipped = g if clip_norm is None else g * clip_factor(g, clip_norm)
    return clipped + weight_decay * w if weight_decay else clipped


def clip_factor(g: Tensor, clip_norm: float) -> Scalar:
    """min(1, clip_norm / ||g||): a float, or (S, 1) for a stack."""
    if g.dim() == 2:
        norms = torch.linalg.vector_norm(g, dim=1, keepdim=True)
        factors: Tensor = norms.reciprocal_().mul_(clip_norm).clamp_(max=1.0)
        return factors
    norm: float = torch.linalg.vector_norm(g).item()
    return 1.0 if norm <= clip_norm else clip_norm / norm


class SingleClient(Local):
    """One client in its local training."""

    stacked = None  # not a stack

    def __init__(self, algorithm: Algorithm, model: FlatModel, work: Work, client: int) -> None:
        self.model = model
        self.work, self.client = work, client
        self.samples = own_samples(work.task, client, work.settings.seed, work.round, model.params.device)
        self.size = size_of(self.samples)
        self.generator = client_generator(work.settings.seed, work.round, client)
        self.batch: Samples | None = None  # of the current step
        self.losses: list[Tensor] = []  # one per step, at w
        self.count = work.steps_of(client, self.size)
        steps = float(self.count)
        down = algorithm.send(work.down, steps)
        super().__init__(down, work.slots(client), work.lr, steps, float(work.first(client)))

    def draw(self) -> Iterator[None]:
        """Draw the minibatches, one per step."""
        for index in minibatches(self.size, self.work.settings, self.generator, steps=self.count):
            self.batch = gather(self.work.task, self.samples, [index], [self.generator])
            self.fresh = True
            yield None

    def end(self) -> None:
        """Called after the last step."""
        self.batch = None

    def grad(self, w: Tensor) -> Tensor:
        """The gradient on this step's minibatch."""
        if self.batch is None:
            raise no_minibatch()
        try:
            loss, g = self.model.loss_and_gradient(w, *self.batch)
        except ValueError as error:
            if length(self.batch[1]) == 1:  # batch norm cannot train on it
                error.add_note("the minibatch has one sample; drop_last drops the smaller last minibatch of an epoch")
            raise
        if self.fresh:  # FedSAM's second gradient is at another point
            self.losses.append(loss)
            self.fresh = False
        return g

    def full_gradient(self, w: Tensor) -> Tensor:
        """The gradient over all of the client's data."""
        return full_gradient(self.model, self.work, self.samples, w)

    def random_like(self, w: Tensor) -> Tensor:
        """Numbers in [0, 1) for this client and round, (d,)."""
        return upload_numbers(self.work.settings.seed, self.work.round, self.client, w)

    def loss(self) -> Tensor:
        """The mean of the minibatch losses."""
        return torch.stack(self.losses).mean()


class Stack(Local):
    """Several clients in their local training, with one batched call per step.

    Clients are sorted by number of local steps, most first, so those that still train are always the first rows.
    Minibatches of one step may differ in size at the end of an epoch; those of equal size are batched together.
    """

    def __init__(self, algorithm: Algorithm, model: FlatModel, work: Work, clients: Sequence[int]) -> None:
        self.model = model
        self.work, self.clients = work, clients
        like = model.params
        parts = [work.task.samples(client, like.device) for client in clients]
        self.stacked = len(clients)
        self.sizes = [length(x) for x, _ in parts]
        self.samples = concatenated(parts)
        self.generators = [client_generator(work.settings.seed, work.round, client) for client in clients]
        self.count = [work.steps_of(*each) for each in zip(clients, self.sizes, strict=True)]
        self.losses = like.new_zeros(len(clients))  # sum over steps, at w
        alike = self.count[0] == self.count[-1]  # then a float and a plan of vectors (d,) are enough
        steps = float(self.count[0]) if alike else like.new_tensor(self.count).unsqueeze(1)
        names = algorithm.client_slots
        own = [work.slots(client) for client in clients] if names else []
        slots = {name: torch.stack([vectors[name] for vectors in own]) for name in names}
        new = [float(work.first(client)) for client in clients]
        first = new[0] if len(set(new)) == 1 else like.new_tensor(new).unsqueeze(1)
        self.batches: list[tuple[list[int], Samples]] = []  # of the current step
        super().__init__(algorithm.send(work.down, steps), slots, work.lr, steps, first)

    def draw(self) -> Iterator[int | None]:
        """Draw each client's next minibatch; yields the number of rows that still train, None for all."""
        starts = accumulate(self.sizes, initial=0)
        drawn = [
            minibatches(size, self.work.settings, generator, start, steps)
            for size, steps, generator, start in zip(self.sizes, self.count, self.generators, starts, strict=False)
        ]
        rows = len(drawn)
        for step in range(self.count[0]):
            while self.count[rows - 1] <= step:
                rows -= 1
            groups: dict[int, list[int]] = {}
            index = [drawn[row][step] for row in range(rows)]
            for row in range(rows):
                groups.setdefault(index[row].numel(), []).append(row)
            self.batches = [self._batch(group, index, rows) for group in groups.values()]
            self.fresh = True
            yield None if rows == len(drawn) else rows

    def end(self) -> None:
        """Called after the last step."""
        self.batches = []

    def _batch(self, group: list[int], index: list[Tensor], rows: int) -> tuple[list[int], Samples]:
        """The minibatches (R, B, ...) of R rows, and the rows.

        If the group is not the whole stack, its first row is repeated until R is a power of two. This limits the number
        of shapes, so that tracing each of them pays off.
        """
        generators = [self.generators[row] for row in group]
        batch = gather(self.work.task, self.samples, [index[row] for row in group], generators)
        x, y = in_rows(batch[0], len(group)), in_rows(batch[1], len(group))
        if fill := min(rows, 1 << (len(group) - 1).bit_length()) - len(group):
            again = [*range(len(group)), *[0] * fill]
            x, y = (each(lambda part: part[again], either) for either in (x, y))
            return [group[place] for place in again], (x, y)
        return group, (x, y)

    def grad(self, w: Tensor) -> Tensor:
        """The gradients (rows, d) on this step's minibatches."""
        if not self.batches:
            raise no_minibatch()
        if len(self.batches) == 1:
            losses, g = self.model.stacked_loss_and_gradient(w, *self.batches[0][1])
        else:
            g, losses = torch.empty_like(w), w.new_empty(len(w))
            for group, batch in self.batches:
                losses[group], g[group] = self.model.stacked_loss_and_gradient(w[group], *batch)
        if self.fresh:  # FedSAM's second gradient is at another point
            self.losses[: w.shape[0]].add_(losses)
            self.fresh = False
        return g

    def full_gradient(self, w: Tensor) -> Tensor:
        """The gradients (S, d), each over all of the client's data."""
        x, y = (split(either, self.sizes) for either in self.samples)
        clients = zip(x, y, w.expand(self.stacked, -1), strict=True)
        return torch.stack([full_gradient(self.model, self.work, (x, y), point) for x, y, point in clients])

    def random_like(self, w: Tensor) -> Tensor:
        """Numbers in [0, 1) for each client and this round, (S, d)."""
        seed, round = self.work.settings.seed, self.work.round
        return torch.stack([upload_numbers(seed, round, *each) for each in zip(self.clients, w, strict=True)])

    def loss(self) -> Tensor:
        """The mean of the minibatch losses of each client, (S,)."""
        return self.losses / self.losses.new_tensor(self.count)


class Rows(LocalView):
    """The first rows of a stack; the other clients have finished."""

    def __init__(self, stack: Local, rows: int) -> None:
        super().__init__(stack)
        self.down, self.slots, self.carry = (
            {name: first(vector, rows) for name, vector in vectors.items()}
            for vectors in (stack.down, stack.slots, stack.carry)
        )
        self.steps, self.first = first_scalar(stack.steps, rows), first_scalar(stack.first, rows)


def in_rows(minibatches: Structure, rows: int) -> Structure:
    """Minibatches of equal size, one after the other, as a stack of rows (R, B, ...)."""
    if isinstance(minibatches, Tensor):
        return minibatches.view(rows, -1, *minibatches.shape[1:])
    return each(lambda part: in_rows(part, rows), minibatches)


def no_minibatch() -> UserError:
    """The error for a method that calls `local.grad` outside a step."""
    return UserError("method: local.grad is for `gradient` only; use local.full_gradient in plan and finish")


def full_gradient(model: FlatModel, work: Work, samples: Samples | LiveSamples, w: Tensor) -> Tensor:
    """The gradient (d,) at w over all of a client's data, as a step uses it; the model's buffers are unchanged."""
    task, settings, buffers = work.task, work.settings, model.buffers
    total, count = torch.zeros_like(w), size_of(samples)
    for x, y in in_parts(samples, FULL_GRADIENT_BATCH):
        share = length(y) / count
        x = x if task.prepare is None else task.prepare(x)
        total.add_(model.loss_and_gradient(w.contiguous(), x, y)[1], alpha=share)
    model.buffers = buffers
    return used_gradient(total, w, settings.weight_decay, settings.clip_norm)


def on(device: torch.device, vectors: Vectors) -> Vectors:
    """Move vectors to a device; those already there are not copied."""
    return {name: vector.to(device) for name, vector in vectors.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one intra-op thread, so that all engines give the same bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
