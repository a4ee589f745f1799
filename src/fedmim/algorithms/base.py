"""The contract that every method fills in: pure functions over named flat vectors.

A method holds hyper-parameters and no state: the server's state is a `ServerState`, a client's in one round a `Local`,
and both are passed in and returned. Every method here is affine in the iterate w and the gradient g, so a `Plan`
describes its local step:

    w <- keep * w - rate * g + shift

A round is: `broadcast` and `send` at the server; `plan`, K times `gradient` and `step`, then `finish` on each client;
`receive` for each upload, the mean over clients and `update` at the server. Vectors have shape (d,). An engine that
trains S clients at once passes stacks of shape (S, d), and scalars of shape (S, 1) where clients differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:  # torch takes seconds to import; `fedmim --help` needs the hyper-parameters alone
    from torch import Tensor

Vectors: TypeAlias = "dict[str, Tensor]"
Scalar: TypeAlias = "float | Tensor"
LARGEST = 1e9  # of any rate or weight: products of several still fit into float32


@dataclass(frozen=True)
class ServerState:
    """All that the server carries from one round to the next, besides the model's buffers."""

    params: Tensor  # x_t, (d,)
    slots: Vectors = field(default_factory=dict)  # the method's own vectors, each (d,)
    round: int = 0  # t, the rounds that have ended


@dataclass(frozen=True)
class Round:
    """What `update` is told about the round that ends."""

    number: int  # t
    lr: float  # the local learning rate of this round
    server_lr: float
    share: float  # of all clients' weight, the part that took part: S/N where clients weigh equally


class Local:
    """What one client has in one round (in a stack: S clients)."""

    def __init__(self, down: Vectors, slots: Vectors, lr: float, steps: Scalar, first: Scalar = 0.0) -> None:
        self.down = down  # received from the server, (d,), or (S, d) where clients are sent different vectors
        self.slots = slots  # the client's own vectors, (d,) or (S, d)
        self.lr = lr
        self.steps = steps  # K, the client's actual number of local steps, a float or (S, 1)
        self.first = first  # 1 where the client has no slots from an earlier round yet, else 0; a float or (S, 1)
        self.k = 0  # the number of the current step, 0 .. K - 1
        self.carry: Vectors = {}  # the vectors of `Plan.carry`, which `gradient` and `step` may write to

    def grad(self, w: Tensor) -> Tensor:
        """The gradient of the loss on this step's minibatch, at any point w; neither clipped nor with weight decay."""
        raise NotImplementedError

    def full_gradient(self, w: Tensor) -> Tensor:
        """The gradient over all of the client's data at w, clipped and with weight decay as in a step.

        For `plan` and `finish`, where there is no minibatch. Data is not augmented; it costs one epoch.
        """
        raise NotImplementedError


class LocalView(Local):
    """A client as another object sees it: `of` with some values replaced; gradients are those of `of`."""

    def __init__(self, of: Local, *, lr: float | None = None) -> None:
        super().__init__(of.down, of.slots, of.lr if lr is None else lr, of.steps, of.first)
        self.of, self.k, self.carry = of, of.k, of.carry

    def grad(self, w: Tensor) -> Tensor:
        """As `of`."""
        return self.of.grad(w)

    def full_gradient(self, w: Tensor) -> Tensor:
        """As `of`."""
        return self.of.full_gradient(w)


@dataclass(frozen=True)
class Plan:
    """The constants of one client's round: w starts at `start`, then w <- keep * w - rate * g + shift.

    Further vectors can be carried from step to step in `carry`. Like w they belong to the engine, which copies them
    first: `gradient` and `step` may write to them (`local.carry`, `plan.carry`), and `finish` sees their last values.
    """

    start: Tensor
    rate: Scalar
    keep: Scalar = 1.0
    shift: Tensor | None = None
    carry: Vectors = field(default_factory=dict)

    def first(self, rows: int) -> Plan:
        """The plan of the first rows of a stack."""
        carry = {name: first(value, rows) for name, value in self.carry.items()}
        shift = None if self.shift is None else first(self.shift, rows)
        return Plan(first(self.start, rows), first_scalar(self.rate, rows), first_scalar(self.keep, rows), shift, carry)

    def with_weight_decay(self, decay: float) -> Plan:
        """The plan for g + decay * w in place of g."""
        return replace(self, keep=self.keep - self.rate * decay) if decay else self

    def scaled(self, factor: Scalar) -> Plan:
        """The plan for factor * g in place of g (gradient clipping)."""
        return replace(self, rate=self.rate * factor)


@dataclass(frozen=True)
class Algorithm:
    """A federated method. This class as it stands is FedAvg; a method overrides what it does differently."""

    title: ClassVar[str] = "Algorithm"  # its name in tables and plots
    client_slots: ClassVar[tuple[str, ...]] = ()  # vectors (d,) that a client keeps between rounds, zero at first
    default_server_lr: ClassVar[float] = 1.0  # where the settings give no server_lr
    any_server_lr: ClassVar[bool] = True  # whether the settings may give another
    gradients: ClassVar[int] = 1  # taken in each local step
    inertial: ClassVar[bool] = False  # whether past increments of the global model move the clients

    @property
    def own_step(self) -> bool:
        """Whether `step` is overridden. An own step is given a gradient that is clipped and has weight decay added."""
        return type(self).step is not Algorithm.step

    def init(self, params: Tensor) -> ServerState:
        """The server's state before the first round."""
        return ServerState(params)

    def broadcast(self, state: ServerState) -> Vectors:
        """What all clients of the round need from the server."""
        return {"params": state.params}

    def send(self, down: Vectors, steps: Scalar) -> Vectors:
        """What a client that takes `steps` local steps is sent of the broadcast: `local.down`, unless K is not known.

        A method overrides it where fewer vectors are enough once K is known. Applied to what it gave, it must change
        nothing.
        """
        return down

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """What is averaged over clients: one client's upload, with what the server can compute from it and K itself.

        `down` is the whole broadcast of the round. What is computed here need not be sent up.
        """
        return upload

    @property
    def past_models(self) -> int:
        """J, where the broadcast of round t is made of the global models x_t, x_{t-1}, ..., x_{t-J} alone, else 0.

        With J above 0 the clients may keep these models themselves (`fedmim.Settings.history`).
        """
        return 0

    def rebuild_broadcast(self, models: Sequence[Tensor]) -> Vectors:
        """What `broadcast` gives, from x_t, x_{t-1}, ..., x_{t-J}; models before the first round are x_0."""
        raise NotImplementedError(f"{self.title} has past_models, so it must have rebuild_broadcast")

    def plan(self, local: Local) -> Plan:
        """The constants of this client's local steps."""
        return Plan(start=local.down["params"], rate=local.lr)

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """The direction of one local step, taken at w."""
        return local.grad(w)

    def step(self, w: Tensor, g: Tensor, plan: Plan) -> Tensor:
        """One local step, w <- keep * w - rate * g + shift, in place.

        Here weight decay is part of `keep` and clipping part of `rate`, which saves passes over the vectors. A method
        that overrides it has both in g, and `keep` and `rate` as planned (`own_step`).
        """
        import torch

        if plan.shift is not None and isinstance(plan.keep, int | float):
            torch.add(plan.shift, w, alpha=plan.keep, out=w)  # in one pass
        else:
            if not (isinstance(plan.keep, int | float) and plan.keep == 1):
                w.mul_(plan.keep)
            if plan.shift is not None:
                w.add_(plan.shift)
        if isinstance(plan.rate, int | float):
            return w.add_(g, alpha=-plan.rate)
        return w.addcmul_(g, plan.rate, value=-1)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """The client's upload (its model under "params") and the new values of its slots.

        Further vectors of an upload may have any size.
        """
        return {"params": w}, {}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """The next server state from the mean of the uploads: x + server_lr * (mean - x)."""
        return replace(state, params=toward(state.params, mean["params"], round.server_lr))

    def output(self, state: ServerState) -> Tensor:
        """The model to evaluate and to return, (d,)."""
        return state.params


def first(vector: Tensor, rows: int) -> Tensor:
    """The first rows of a stack (S, d); a vector (d,) that they share stays as it is."""
    return vector[:rows] if vector.dim() == 2 else vector


def first_scalar(scalar: Scalar, rows: int) -> Scalar:
    """The same for a scalar, a float or (S, 1)."""
    return scalar if isinstance(scalar, int | float) else first(scalar, rows)


def of_length(length: float, vector: Tensor) -> Tensor:
    """The vector, or each row of a stack, scaled to this length; zero where it is zero."""
    norm: Tensor = vector.norm(dim=-1, keepdim=True)
    return length * vector / norm.clamp_min(1e-30)


def plus(x: Tensor, factor: Scalar, v: Tensor) -> Tensor:
    """x + factor * v, in one pass where the factor is a number."""
    return x.add(v, alpha=factor) if isinstance(factor, int | float) else x + factor * v


def toward(x: Tensor, mean: Tensor, server_lr: float) -> Tensor:
    """x + server_lr * (mean - x), which at 1 is the mean to the last bit."""
    return mean if server_lr == 1.0 else x + server_lr * (mean - x)


def require(ok: bool, message: str) -> None:
    """Reject a hyper-parameter; the message begins with the name of the field."""
    if not ok:
        raise ValueError(message)


def check_positive(**fields: float) -> None:
    """Reject values that are not numbers above zero and at most LARGEST."""
    for name, value in fields.items():
        require(math.isfinite(value) and value > 0, f"{name}: must be a finite number above 0, got {value}")
        require(value <= LARGEST, f"{name}: must be at most {LARGEST:g}, got {value:g}")


def check_not_negative(**fields: float) -> None:
    """Reject values that are not numbers of at least zero and at most LARGEST."""
    for name, value in fields.items():
        require(0 <= value <= LARGEST, f"{name}: must be finite and not negative, at most {LARGEST:g}, got {value:g}")


def check_weights(**fields: Sequence[float]) -> None:
    """Reject inertial weights that are not finite, negative, or do not sum to less than 1."""
    for name, weights in fields.items():
        require(finite(weights), f"{name}: the weights must be finite, got {weights}")
        require(min(weights, default=0) >= 0, f"{name}: the weights must not be negative, got {weights}")
        require(math.fsum(weights) < 1, f"{name}: the weights must sum to less than 1, got {weights}")


def check_fraction(**fields: float) -> None:
    """Reject values outside [0, 1)."""
    for name, value in fields.items():
        require(0 <= value < 1, f"{name}: must be at least 0 and below 1, got {value}")


def finite(values: Iterable[float]) -> bool:
    """Whether all values are finite, and none is beyond LARGEST."""
    return all(abs(value) <= LARGEST for value in values)
