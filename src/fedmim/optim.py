"""The local step of every method as a `torch.optim.Optimizer`, for training loops of your own.

    optimizer = LocalOptimizer(model.parameters(), FedMIM(), down, lr=0.1, steps=epochs * len(loader))
    for x, y in batches:                      # K of them
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    upload, slots = optimizer.finish()        # the model is now the client's, x_i

`down` is what the server sent (`algorithm.broadcast(state)`), `slots` what the client kept from its last round.
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

    Making it moves the parameters to where the method starts (for FedMIM x_t - m2), `step` moves them on, and
    `finish` to the client's model. Methods that take a second gradient (FedSAM) need `step(closure)`, with the usual
    closure that clears the gradients, computes the loss, calls backward and returns the loss. Methods that take the
    gradient over all of the client's data (MimeLite) need such a closure over all of it, as `full_gradient`.
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
            raise UserError("params: give the parameters, not groups of them; a round has one learning rate")
        self._trained = [p for p in params if p.requires_grad]
        super().__init__(self._trained, {"lr": lr})
        total = sum(p.numel() for p in self._trained)
        if total != len(down["params"]):
            raise UserError(f"params: they have {total} numbers, and {len(down['params'])} came from the server")
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
        """One local step from the gradients at hand, or from those that the closure computes."""
        if self.param_groups[0]["lr"] != self._local.lr:
            raise UserError("lr: it is constant within a round; a schedule goes from round to round")
        if self._taken == self._local.steps:
            raise UserError(f"steps: {self._taken} were announced, and this would be one more")
        loss = self._local.begin(closure)
        self._local.k = self._taken
        self._stepper.step(self._local)
        self._taken += 1
        self.move_to(self.at)
        return loss

    @torch.no_grad()
    def finish(self) -> tuple[Vectors, Vectors]:
        """What the client sends up and what it keeps; the parameters are then the client's model."""
        if self._taken != self._local.steps:
            raise UserError(f"steps: {self._local.steps:.0f} were announced and {self._taken} taken")
        local = self._local
        upload, slots = self.algorithm.finish(self._plan.start, local)
        received = self.algorithm.receive(upload, local.down, local.lr, float(self._taken))
        self.move_to(received["params"])
        return upload, slots

    @torch.no_grad()
    def full_gradient(self, w: Tensor) -> Tensor:
        """The gradient over all of the client's data at w, clipped and with weight decay as in a step."""
        if self._full_gradient is None:
            title = self.algorithm.title
            raise UserError(f"full_gradient: {title} needs the gradient over all of the client's data; give a closure")
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
        """The vector w that the steps move, (d,)."""
        return self._plan.start

    def gradients(self) -> Tensor:
        """The parameters' gradients as one vector; zero where there is none."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._trained]
        return torch.cat([part.reshape(-1) for part in parts])


class _Own(Local):
    """A client whose gradients come from the user's own backward passes."""

    def __init__(
        self, optimizer: LocalOptimizer, down: Vectors, slots: Vectors, lr: float, steps: float, first: float
    ) -> None:
        super().__init__(down, slots, lr, steps, first)
        self._optimizer, self._fresh = optimizer, False
        self._closure: Closure | None = None

    def begin(self, closure: Closure | None) -> Any:
        """A new step: its loss, where the closure gives one, with the gradient at the present point."""
        self._closure, self._fresh = closure, True
        if closure is None:
            return None
        with torch.enable_grad():
            return closure()

    def grad(self, w: Tensor) -> Tensor:
        """The gradient at w: the one at hand where the model is, by the closure anywhere else."""
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
        """The gradient over all of the client's data, by the user's closure for it."""
        return self._optimizer.full_gradient(w)
