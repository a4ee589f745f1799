"""The interface of a method: pure functions on named flat vectors.

A method has hyper-parameters but no state. The server's state is a `ServerState`, a client's state within one round is
a `Local`; both are passed in and returned. Every method here is affine in the iterate w and the gradient g, so a
`Plan` describes its local step:

    w <- keep * w - rate * g + shift

In each round, the server calls `broadcast` and `send`. Each client calls `plan`, then `gradient` and `step` K times,
then `finish`. The server calls `receive` for each upload, averages over clients, and calls `update`. Vectors have
shape (d,). An engine that trains S clients at once passes stacks of shape (S, d), and scalars of shape (S, 1) if
clients differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:  # importing torch takes seconds; `fedmim --help` needs only the hyper-parameters
    from torch import Tensor

Vectors: TypeAlias = "dict[str, Tensor]"
"""Named flat vectors (d,), or (S, d) in a stack of clients."""
Scalar: TypeAlias = "float | Tensor"
"""A number, or (S, 1) in a stack of clients that differ."""
LARGEST = 1e9  # upper limit of learning rates and weights; products of several still fit into float32


@dataclass(frozen=True)
class ServerState:
    """What the server keeps between rounds, except the model's buffers."""

    params: Tensor
    """The global model x_t, (d,)."""
    slots: Vectors = field(default_factory=dict)
    """The method's own vectors, each (d,)."""
    round: int = 0
    """The number of finished rounds, t."""


@dataclass(frozen=True)
class Round:
    """The facts of the current round that `update` may use."""

    number: int
    """The number of the round, t."""
    lr: float
    """The local learning rate of this round."""
    server_lr: float
    """The server learning rate."""
    share: float
    """The participating clients' part of the total weight; S/N with equal weights."""


class Local:
    """The state of one client, or of a stack of S clients, during one round."""

    def __init__(self, down: Vectors, slots: Vectors, lr: float, steps: Scalar, first: Scalar = 0.0) -> None:
        self.down = down
        """What the client received from the server, each (d,), or (S, d) if clients receive different vectors."""
        self.slots = slots
        """The client's own vectors from its last round, each (d,) or (S, d)."""
        self.lr = lr
        """The local learning rate of the round."""
        self.steps = steps
        """K, the client's actual number of local steps, a float or (S, 1)."""
        self.first = first
        """1 if the client has no slots from an earlier round, else 0; a float or (S, 1)."""
        self.k = 0
        """The number of the current step, 0 .. K - 1."""
        self.carry: Vectors = {}
        """The vectors of `Plan.carry`, which `gradient` and `step` may write to."""

    def grad(self, w: Tensor) -> Tensor:
        """The gradient of the loss on this step's minibatch at any point w, without clipping and weight decay."""
        raise NotImplementedError

    def full_gradient(self, w: Tensor) -> Tensor:
        """The gradient at w over all of the client's data, clipped and with weight decay as in a step.

        For `plan` and `finish`, which have no minibatch. Does not augment the data. Costs one epoch.
        """
        raise NotImplementedError

    def random_like(self, w: Tensor) -> Tensor:
        """Random numbers in [0, 1) of the shape of w, a function of the seed, the round and the client."""
        raise NotImplementedError


class LocalView(Local):
    """A view of another `Local` with some values replaced; gradients are those of the original."""

    def __init__(self, of: Local, *, lr: float | None = None) -> None:
        super().__init__(of.down, of.slots, of.lr if lr is None else lr, of.steps, of.first)
        self.of, self.k, self.carry = of, of.k, of.carry

    def grad(self, w: Tensor) -> Tensor:
        """The gradient of the original."""
        return self.of.grad(w)

    def full_gradient(self, w: Tensor) -> Tensor:
        """The gradient of the original."""
        return self.of.full_gradient(w)

    def random_like(self, w: Tensor) -> Tensor:
        """The numbers of the original."""
        return self.of.random_like(w)


@dataclass(frozen=True)
class Plan:
    """The constants of one client's round: w starts at `start`, then w <- keep * w - rate * g + shift.

    `carry` has further vectors that change from step to step. The engine copies w and these vectors first, so
    `gradient` and `step` may write to them (`local.carry`, `plan.carry`). `finish` sees their final values.
    """

    start: Tensor
    """Where w starts."""
    rate: Scalar
    """The factor of the gradient."""
    keep: Scalar = 1.0
    """The factor of w."""
    shift: Tensor | None = None
    """What is added in every step; None: nothing."""
    carry: Vectors = field(default_factory=dict)
    """Further vectors that change from step to step."""

    def first(self, rows: int) -> Plan:
        """The plan of the first rows of a stack."""
        carry = {name: first(value, rows) for name, value in self.carry.items()}
        shift = None if self.shift is None else first(self.shift, rows)
        return Plan(first(self.start, rows), first_scalar(self.rate, rows), first_scalar(self.keep, rows), shift, carry)

    def with_weight_decay(self, decay: float) -> Plan:
        """The plan that uses g + decay * w instead of g."""
        return replace(self, keep=self.keep - self.rate * decay) if decay else self

    def scaled(self, factor: Scalar) -> Plan:
        """The plan that uses factor * g instead of g (gradient clipping)."""
        return replace(self, rate=self.rate * factor)


@dataclass(frozen=True)
class Algorithm:
    """A federated method. The defaults are FedAvg; a method overrides what it does differently."""

    title: ClassVar[str] = "Algorithm"
    """Name in tables and plots."""
    client_slots: ClassVar[tuple[str, ...]] = ()
    """Vectors (d,) that a client keeps between rounds; initially zero."""
    default_server_lr: ClassVar[float] = 1.0
    """The server learning rate if the settings have none."""
    any_server_lr: ClassVar[bool] = True
    """Whether the settings may change the server learning rate."""
    gradients: ClassVar[int] = 1
    """Gradients per local step."""
    inertial: ClassVar[bool] = False
    """Whether past increments of the global model move the clients."""
    uploads_model: ClassVar[bool] = True
    """Whether "params" of the upload is the model itself, after the last step."""
    pooled: ClassVar[bool] = False
    """Whether one client trains on the data of all clients."""
    own_models: ClassVar[bool] = False
    """Whether clients have their own models, in the slot "model", and no global one."""

    @property
    def reference(self) -> bool:
        """Whether it is a reference for federated methods, without communication."""
        return self.pooled or self.own_models

    @property
    def own_step(self) -> bool:
        """Whether the method overrides `step`; if so, `step` gets the gradient after clipping and weight decay."""
        return type(self).step is not Algorithm.step

    @property
    def plain_sgd(self) -> bool:
        """Whether clients take SGD steps from the one model that they are sent, and return their model.

        Any training function does this, so only the server has to know such a method.
        """
        hooks = ("broadcast", "send", "plan", "gradient", "step", "finish", "receive")
        return not self.client_slots and all(getattr(type(self), hook) is getattr(Algorithm, hook) for hook in hooks)

    def init(self, params: Tensor) -> ServerState:
        """The server's state before the first round."""
        return ServerState(params)

    def broadcast(self, state: ServerState) -> Vectors:
        """The vectors that the clients of a round need from the server."""
        return {"params": state.params}

    def send(self, down: Vectors, steps: Scalar) -> Vectors:
        """The part of the broadcast that is sent to a client with `steps` local steps, if that number is known.

        Override it if fewer vectors are enough once K is known. The result becomes `local.down`. Applying `send` to
        its own result must change nothing.
        """
        return down

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """The vectors to average: one client's upload, and what the server can compute from it and K.

        `down` is the whole broadcast of the round. The client does not need to send what is computed here.
        """
        return upload

    @property
    def past_models(self) -> int:
        """J if the broadcast of round t depends only on the global models x_t, x_{t-1}, ..., x_{t-J}, else 0.

        If J is above 0, the clients may keep these models themselves (`fedmim.Settings.history`).
        """
        return 0

    def rebuild_broadcast(self, models: Sequence[Tensor]) -> Vectors:
        """The result of `broadcast`, computed from x_t, x_{t-1}, ..., x_{t-J}; models before round 0 are x_0."""
        raise NotImplementedError(f"{self.title} has past_models, so it must define rebuild_broadcast")

    def plan(self, local: Local) -> Plan:
        """The constants of this client's local steps."""
        return Plan(start=local.down["params"], rate=local.lr)

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """The gradient of one local step from w."""
        return local.grad(w)

    def step(self, w: Tensor, g: Tensor, plan: Plan) -> Tensor:
        """One local step, w <- keep * w - rate * g + shift, in place.

        Here `keep` includes weight decay and `rate` includes clipping, which saves passes over the vectors. A method
        that overrides `step` gets both in g, and `keep` and `rate` as planned (see `own_step`).
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

        Other vectors of the upload may have any size.
        """
        return {"params": w}, {}

    def upload_bytes(self, upload: Vectors) -> int:
        """The bytes that a client sends for this upload."""
        return sum(vector.nbytes for vector in upload.values())

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """The next server state from the mean of the uploads: x + server_lr * (mean - x)."""
        return replace(state, params=toward(state.params, mean["params"], round.server_lr))

    def output(self, state: ServerState) -> Tensor:
        """The model to evaluate and to return, (d,)."""
        return state.params


def first(vector: Tensor, rows: int) -> Tensor:
    """The first rows of a stack (S, d); a shared vector (d,) is returned unchanged."""
    return vector[:rows] if vector.dim() == 2 else vector


def first_scalar(scalar: Scalar, rows: int) -> Scalar:
    """As `first`, for a scalar: a float or (S, 1)."""
    return scalar if isinstance(scalar, int | float) else first(scalar, rows)


def of_length(length: float, vector: Tensor) -> Tensor:
    """Scale the vector, or each row of a stack, to this length; zero vectors stay zero."""
    norm: Tensor = vector.norm(dim=-1, keepdim=True)
    return length * vector / norm.clamp_min(1e-30)


def plus(x: Tensor, factor: Scalar, v: Tensor) -> Tensor:
    """x + factor * v, in one pass if the factor is a number."""
    return x.add(v, alpha=factor) if isinstance(factor, int | float) else x + factor * v


def toward(x: Tensor, mean: Tensor, server_lr: float) -> Tensor:
    """x + server_lr * (mean - x); exactly the mean if server_lr is 1."""
    return mean if server_lr == 1.0 else x + server_lr * (mean - x)


def require(ok: bool, message: str) -> None:
    """Reject a hyper-parameter; the message starts with the name of the field."""
    if not ok:
        raise ValueError(message)


def check_positive(**fields: float) -> None:
    """Reject values that are not above 0 and at most LARGEST."""
    for name, value in fields.items():
        require(math.isfinite(value) and value > 0, f"{name}: must be a finite number above 0, got {value}")
        require(value <= LARGEST, f"{name}: must be at most {LARGEST:g}, got {value:g}")


def check_not_negative(**fields: float) -> None:
    """Reject values outside [0, LARGEST]."""
    for name, value in fields.items():
        require(0 <= value <= LARGEST, f"{name}: must be between 0 and {LARGEST:g}, got {value:g}")


def check_weights(**fields: Sequence[float]) -> None:
    """Reject inertial weights that are negative, not finite, or sum to 1 or more."""
    for name, weights in fields.items():
        require(finite(weights), f"{name}: the weights must be finite, got {weights}")
        require(min(weights, default=0) >= 0, f"{name}: the weights must not be negative, got {weights}")
        require(math.fsum(weights) < 1, f"{name}: the weights must sum to less than 1, got {weights}")


def check_fraction(**fields: float) -> None:
    """Reject values outside [0, 1)."""
    for name, value in fields.items():
        require(0 <= value < 1, f"{name}: must be at least 0 and below 1, got {value}")


def finite(values: Iterable[float]) -> bool:
    """Whether all values are finite and at most LARGEST in magnitude."""
    return all(abs(value) <= LARGEST for value in values)
