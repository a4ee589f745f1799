"""The lists that the contract tests run through: every federated method, variants of FedMIM, a user's own methods, and
with them the references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

import fedmim
from fedmim.algorithms import METHODS, REFERENCES


@dataclass(frozen=True)
class LocalMomentum(fedmim.Algorithm):
    """A step of its own that carries two vectors: v <- m v + eta g; a <- (9 a + w) / 10; w <- w - v + (a - w) / 20."""

    title: ClassVar[str] = "local momentum"
    momentum: float = 0.5

    def plan(self, local: fedmim.Local) -> fedmim.Plan:
        x = local.down["params"]
        return fedmim.Plan(start=x, rate=local.lr, carry={"velocity": torch.zeros_like(x), "average": x})

    def step(self, w: Tensor, g: Tensor, plan: fedmim.Plan) -> Tensor:
        velocity = plan.carry["velocity"].mul_(self.momentum).add_(plan.rate * g)
        average = plan.carry["average"].mul_(0.9).add_(0.1 * w)
        return w - velocity + 0.05 * (average - w)


@dataclass(frozen=True)
class Remembering(fedmim.Algorithm):
    """State on both sides: clients start between x_t and where they last ended; the server tracks the mean change."""

    title: ClassVar[str] = "remembering"
    client_slots: ClassVar[tuple[str, ...]] = ("offset", "visits")

    def init(self, params: Tensor) -> fedmim.ServerState:
        return fedmim.ServerState(params, {"change": torch.zeros_like(params)})

    def broadcast(self, state: fedmim.ServerState) -> fedmim.Vectors:
        return {"params": state.params, "change": state.slots["change"]}

    def plan(self, local: fedmim.Local) -> fedmim.Plan:
        start = local.down["params"] + 0.1 * local.slots["offset"]
        return fedmim.Plan(start=start, rate=local.lr / local.steps, shift=0.1 * local.down["change"] / local.steps)

    def finish(self, w: Tensor, local: fedmim.Local) -> tuple[fedmim.Vectors, fedmim.Vectors]:
        offset = w - local.down["params"]
        return {"params": w, "offset": offset}, {"offset": offset, "visits": local.slots["visits"] + 1}

    def update(self, state: fedmim.ServerState, mean: fedmim.Vectors, round: fedmim.Round) -> fedmim.ServerState:
        change = 0.5 * state.slots["change"] + 0.5 * mean["offset"]
        return replace(super().update(state, mean, round), slots={"change": change})


@dataclass(frozen=True)
class LastChange(fedmim.Algorithm):
    """One past model: a client's steps are drawn along by the last change of the global model, x_t - x_{t-1}."""

    title: ClassVar[str] = "last change"

    @property
    def past_models(self) -> int:
        return 1

    def init(self, params: Tensor) -> fedmim.ServerState:
        return fedmim.ServerState(params, {"previous": params})

    def broadcast(self, state: fedmim.ServerState) -> fedmim.Vectors:
        return self.rebuild_broadcast([state.params, state.slots["previous"]])

    def rebuild_broadcast(self, models: Sequence[Tensor]) -> fedmim.Vectors:
        return {"params": models[0], "change": models[0] - models[1]}

    def plan(self, local: fedmim.Local) -> fedmim.Plan:
        return fedmim.Plan(start=local.down["params"], rate=local.lr, shift=0.3 * local.down["change"] / local.steps)

    def update(self, state: fedmim.ServerState, mean: fedmim.Vectors, round: fedmim.Round) -> fedmim.ServerState:
        return fedmim.ServerState(super().update(state, mean, round).params, {"previous": state.params})


@dataclass(frozen=True)
class Everything(fedmim.Algorithm):
    """All that the contract offers at once: the step's number, a carried vector, the first time, small uploads."""

    title: ClassVar[str] = "everything"
    client_slots: ClassVar[tuple[str, ...]] = ("last",)

    def plan(self, local: fedmim.Local) -> fedmim.Plan:
        x = local.down["params"]
        start = x + 0.1 * (1 - local.first) * (local.slots["last"] - x)
        return fedmim.Plan(start=start, rate=local.lr, carry={"sum": torch.zeros_like(x)})

    def gradient(self, w: Tensor, local: fedmim.Local) -> Tensor:
        g = local.grad(w)
        local.carry["sum"].add_(g, alpha=1 / (1 + local.k))
        return g

    def finish(self, w: Tensor, local: fedmim.Local) -> tuple[fedmim.Vectors, fedmim.Vectors]:
        total, full = local.carry["sum"], local.full_gradient(local.down["params"])
        small = torch.stack([total.norm(dim=-1), full.norm(dim=-1)], dim=-1)
        return {"params": w - 0.01 * total, "norms": small}, {"last": w}

    def update(self, state: fedmim.ServerState, mean: fedmim.Vectors, round: fedmim.Round) -> fedmim.ServerState:
        return replace(state, params=mean["params"] + 0.01 * mean["norms"].sum())


EVERY_METHOD: dict[str, fedmim.Algorithm] = {
    **{name: method() for name, method in METHODS.items() if name not in REFERENCES},
    "fedmim J=0": fedmim.FedMIM(alpha=(), beta=()),
    "fedmim J=1": fedmim.FedMIM(alpha=(0.5,), beta=(0.7,)),
    "fedmim J=3": fedmim.FedMIM(alpha=(0.4, 0.2, 0.1), beta=(0.5, 0.3, 0.2)),
    "fedmim unequal lengths": fedmim.FedMIM(alpha=(0.3,), beta=(0.5, 0.0, 0.2)),
    "fedmim negative beta": fedmim.FedMIM(alpha=(0.2, 0.1), beta=(-0.5,)),
    "fedmim look-ahead in increments": fedmim.FedMIM(alpha=(0.3, 0.2), beta=(0.5, 0.2), beta_unit="round"),
    "fedavg+leap": fedmim.Leap(fedmim.FedAvg()),
    "feddyn+leap": fedmim.Leap(fedmim.FedDyn(), alpha=(0.3, 0.2), ahead=0.5),
    "scaffold+sharp": fedmim.Sharp(fedmim.Scaffold()),
    "feddyn+leap+sharp": fedmim.Sharp(fedmim.Leap(fedmim.FedDyn(), alpha=(0.3, 0.2)), radius=0.05),
    "mimelite+sharp+leap": fedmim.Leap(fedmim.Sharp(fedmim.MimeLite(), radius=0.05), alpha=(0.5,)),
    "own: everything": Everything(),
    "own: everything, leap": fedmim.Leap(Everything(), alpha=(0.5,)),
    "own: local momentum": LocalMomentum(),
    "own: local momentum, sharp": fedmim.Sharp(LocalMomentum()),
    "own: state on both sides": Remembering(),
    "own: one past model": LastChange(),
}

# For tests that need no communication.
WITH_REFERENCES = EVERY_METHOD | {
    **{name: method() for name, method in REFERENCES.items()},
    "centralised+sharp": fedmim.Sharp(fedmim.Centralised()),
    "local+sharp": fedmim.Sharp(fedmim.LocalOnly()),
}
