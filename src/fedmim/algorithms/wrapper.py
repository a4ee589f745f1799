"""Wrappers: methods that change a part of another method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, Scalar, ServerState, Vectors, require

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Wrapper(Algorithm):
    """A method that changes a part of another one, `inner`, and delegates the rest to it."""

    suffix: ClassVar[str] = ""
    """The name on the command line, after the +, for example leap in feddyn+leap."""

    inner: Algorithm
    """The method that is wrapped."""

    def check_federated(self) -> None:
        """Reject a reference, for a wrapper that changes what is sent or how models are combined."""
        why = f"{self.inner.title} is a reference without communication"
        require(not self.inner.reference, f"{self.suffix}: {why}; remove +{self.suffix}")

    @property
    def title(self) -> str:  # type: ignore[override]
        """For example FedDyn + leap."""
        return f"{self.inner.title} + {self.suffix}"

    @property
    def client_slots(self) -> tuple[str, ...]:  # type: ignore[override]
        """As the inner method."""
        return self.inner.client_slots

    @property
    def default_server_lr(self) -> float:  # type: ignore[override]
        """As the inner method."""
        return self.inner.default_server_lr

    @property
    def any_server_lr(self) -> bool:  # type: ignore[override]
        """As the inner method."""
        return self.inner.any_server_lr

    @property
    def gradients(self) -> int:  # type: ignore[override]
        """As the inner method."""
        return self.inner.gradients

    @property
    def inertial(self) -> bool:  # type: ignore[override]
        """As the inner method."""
        return self.inner.inertial

    @property
    def uploads_model(self) -> bool:  # type: ignore[override]
        """As the inner method."""
        return self.inner.uploads_model

    @property
    def pooled(self) -> bool:  # type: ignore[override]
        """As the inner method."""
        return self.inner.pooled

    @property
    def own_models(self) -> bool:  # type: ignore[override]
        """As the inner method."""
        return self.inner.own_models

    @property
    def own_step(self) -> bool:
        """As the inner method."""
        return self.inner.own_step

    @property
    def past_models(self) -> int:
        """As the inner method."""
        return self.inner.past_models

    def init(self, params: Tensor) -> ServerState:
        """As the inner method."""
        return self.inner.init(params)

    def broadcast(self, state: ServerState) -> Vectors:
        """As the inner method."""
        return self.inner.broadcast(state)

    def rebuild_broadcast(self, models: Sequence[Tensor]) -> Vectors:
        """As the inner method."""
        return self.inner.rebuild_broadcast(models)

    def send(self, down: Vectors, steps: Scalar) -> Vectors:
        """As the inner method."""
        return self.inner.send(down, steps)

    def receive(self, upload: Vectors, down: Vectors, lr: float, steps: float) -> Vectors:
        """As the inner method."""
        return self.inner.receive(upload, down, lr, steps)

    def plan(self, local: Local) -> Plan:
        """As the inner method."""
        return self.inner.plan(local)

    def gradient(self, w: Tensor, local: Local) -> Tensor:
        """As the inner method."""
        return self.inner.gradient(w, local)

    def step(self, w: Tensor, g: Tensor, plan: Plan) -> Tensor:
        """As the inner method."""
        return self.inner.step(w, g, plan)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """As the inner method."""
        return self.inner.finish(w, local)

    def upload_bytes(self, upload: Vectors) -> int:
        """As the inner method."""
        return self.inner.upload_bytes(upload)

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """As the inner method."""
        return self.inner.update(state, mean, round)

    def output(self, state: ServerState) -> Tensor:
        """As the inner method."""
        return self.inner.output(state)
