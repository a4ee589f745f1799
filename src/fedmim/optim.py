"""The local step of every method as a `torch.optim.Optimizer`, for your own training loops.

    optimizer = LocalOptimizer(model.parameters(), FedMIM(), down, lr=0.1, steps=epochs * len(loader))
    for x, y in batches:                      # K batches
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    upload, slots = optimizer.finish()        # the model is now x_i

`down` is what the server sent (`algorithm.broadcast(state)`), `slots` is what the client kept from its last round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, Local, Vectors
from fedmim.errors import UserError
from fedmim.simulation.training import Stepper, used_gradient, with_copies

Closure = Callable[[], Any]


class LocalOptimizer(torch.optim.Optimizer):
    """One client's local steps in one round, w <- keep * w - rate * g + shift, as the method plans them.

    The constructor sets the parameters to the start of the method (x_t - m2 for FedMIM), `step` takes one local step,
    and `finish` sets them to the client's model. Methods that take a second gradient (FedSAM) need `step(closure)`. As
    in PyTorch, the closure clears the gradients, computes the loss, calls backward and returns the loss. Methods that
    use the gradient over all of the client's data (MimeLite) need a closure over all data as `full_gradient`.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        algorithm: Algorithm,
        down: Vectors,
        *,
        lr: float,
        steps: int,
        slots: Vectors | None = None,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        full_gradient: Closure | None = None,
    ) -> None:
        if not (math.isfinite(lr) and lr > 0):
            raise UserError(f"lr: must be a finite number above 0, got {lr}")
        if steps < 1:
            raise UserError(f"steps: must be a whole number of at least 1, got {steps}")
        params = list(params)
        if not all(isinstance(p, Tensor) for p in params):
            raise UserError("params: must be parameters, not parameter groups, because a round has one learning rate")
        self._trained = [p for p in params if p.requires_grad]
        super().__init__(self._trained, {"lr": lr})
        total = sum(p.numel() for p in self._trained)
        if total != len(down["params"]):
            raise UserError(f"params: have {total} elements, but the server sent {len(down['params'])}")
        self.algorithm, self._full_gradient = algorithm, full_gradient
        self.weight_decay, self.clip_norm = weight_decay, clip_norm
        zeros = {name: torch.zeros_like(down["params"]) for name in algorithm.client_slots}
        self._local = _Own(self, down, slots or zeros, lr, float(steps), float(not slots))
        self._plan = with_copies(algorithm.plan(self._local))
        self._local.carry = self._plan.carry
        self._stepper = Stepper(algorithm, self._plan, weight_decay, clip_norm)
        self._taken = 0
        self.move_to(self._plan.start)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """One local step with the current gradients, or with those that the closure computes."""
        if self.param_groups[0]["lr"] != self._local.lr:
            raise UserError("lr: must not change within a round; change it between rounds")
        if self._taken == self._local.steps:
            raise UserError(f"steps: all {self._taken} steps of the round are already taken")
        loss = self._local.begin(closure)
        self._local.k = self._taken
        self._stepper.step(self._local)
        self._taken += 1
        self.move_to(self.at)
        return loss

    @torch.no_grad()
    def finish(self) -> tuple[Vectors, Vectors]:
        """The client's upload and its slots; sets the parameters to the client's model."""
        if self._taken != self._local.steps:
            raise UserError(f"steps: only {self._taken} of {self._local.steps:.0f} steps were taken")
        local = self._local
        upload, slots = self.algorithm.finish(self._plan.start, local)
        received = self.algorithm.receive(upload, local.down, local.lr, float(self._taken))
        self.move_to(received["params"])
        return upload, slots

    @torch.no_grad()
    def full_gradient(self, w: Tensor) -> Tensor:
        """The gradient at w over all of the client's data, clipped and with weight decay as in a step."""
        if self._full_gradient is None:
            title = self.algorithm.title
            raise UserError(f"full_gradient: {title} needs the gradient over all of the client's data; pass a closure")
        self.move_to(w)
        with torch.enable_grad():
            self._full_gradient()
        return used_gradient(self.gradients(), w, self.weight_decay, self.clip_norm)

    @torch.no_grad()
    def move_to(self, w: Tensor) -> None:
        """Copy a flat vector into the parameters."""
        for p, part in zip(self._trained, w.split([p.numel() for p in self._trained]), strict=True):
            p.copy_(part.view(p.shape))

    @property
    def at(self) -> Tensor:
        """The vector w that the steps change, (d,)."""
        return self._plan.start

    def gradients(self) -> Tensor:
        """The parameters' gradients as one vector; zero for parameters without gradient."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._trained]
        return torch.cat([part.reshape(-1) for part in parts])


class _Own(Local):
    """A client whose gradients come from the user's backward passes."""

    def __init__(
        self, optimizer: LocalOptimizer, down: Vectors, slots: Vectors, lr: float, steps: float, first: float
    ) -> None:
        super().__init__(down, slots, lr, steps, first)
        self._optimizer, self._fresh = optimizer, False
        self._closure: Closure | None = None

    def begin(self, closure: Closure | None) -> Any:
        """Start a step; calls the closure, if there is one, and returns its loss."""
        self._closure, self._fresh = closure, True
        if closure is None:
            return None
        with torch.enable_grad():
            return closure()

    def grad(self, w: Tensor) -> Tensor:
        """The gradient at w: the current one at the model's parameters, from the closure at any other point."""
        if self._fresh and w is self._optimizer.at:
            self._fresh = False
            return self._optimizer.gradients()
        if self._closure is None:
            title = self._optimizer.algorithm.title
            raise UserError(f"closure: {title} takes more than one gradient per step; call optimizer.step(closure)")
        self._optimizer.move_to(w)
        with torch.enable_grad():
            self._closure()
        return self._optimizer.gradients()

    def full_gradient(self, w: Tensor) -> Tensor:
        """The gradient over all of the client's data, from the user's closure."""
        return self._optimizer.full_gradient(w)
