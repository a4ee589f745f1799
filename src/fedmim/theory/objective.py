"""The functions that the theorems speak of, f_i and f = (1/N) sum_i f_i, of any task: values, gradients, curvature.

f_i is the mean loss over a client's data plus (weight_decay / 2) ||w||^2, without augmentation and with the model in
evaluation mode, so that it is a function and not a random variable.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import functional_call

from fedmim.simulation.task import Task

CHUNK = 512  # samples at once


class Objective:
    """f_i and f of a task, at points w (d,)."""

    def __init__(self, task: Task, weight_decay: float = 0.0) -> None:
        self.task, self.weight_decay = task, weight_decay
        self.module = copy.deepcopy(task.model).eval()
        trained = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        self.names, self.shapes = list(trained), [p.shape for p in trained.values()]
        self.sizes = [p.numel() for p in trained.values()]

    def value_and_gradient(self, w: Tensor, client: int) -> tuple[float, Tensor]:
        """f_i(w) and its gradient (d,), over all of the client's data."""
        w = w.detach().requires_grad_()
        value, gradient = 0.0, torch.zeros_like(w)
        for share, x, y in self._chunks(client):
            loss = share * self._loss(w, x, y)
            gradient += torch.autograd.grad(loss, w)[0]
            value += float(loss.detach())
        w = w.detach()
        return value + self.weight_decay / 2 * float(w @ w), gradient + self.weight_decay * w

    def minibatch_gradient(self, w: Tensor, client: int, index: Tensor) -> Tensor:
        """The gradient on some of a client's samples."""
        w = w.detach().requires_grad_()
        x, y = self.task.samples(client)
        gradient: Tensor = torch.autograd.grad(self._loss(w, self._prepared(x[index]), y[index]), w)[0]
        return gradient + self.weight_decay * w.detach()

    def curve(self, w: Tensor, client: int, direction: Tensor) -> Tensor:
        """The Hessian of f_i at w times a direction, by differentiating the gradient."""
        w = w.detach().requires_grad_()
        product = torch.zeros_like(w)
        for share, x, y in self._chunks(client):
            (gradient,) = torch.autograd.grad(share * self._loss(w, x, y), w, create_graph=True)
            if gradient.requires_grad:  # not so where the loss is linear in w
                (part,) = torch.autograd.grad(gradient @ direction, w, materialize_grads=True)
                product += part
        return product + self.weight_decay * direction

    def sharpness(self, w: Tensor, client: int, iterations: int, generator: torch.Generator) -> float:
        """The largest |eigenvalue| of the Hessian of f_i at w, from below, by power iteration."""
        v = torch.randn(w.shape, generator=generator, dtype=torch.float64).to(w)
        largest = 0.0
        for _ in range(iterations):
            norm = float(v.norm())
            if norm == 0:
                break
            v = self.curve(w, client, v / norm)
            largest = float(v.norm())
        return largest

    def _chunks(self, client: int) -> Iterator[tuple[float, Tensor, Tensor]]:
        """The client's data in parts, each with its share of it."""
        x, y = self.task.samples(client)
        for start in range(0, len(x), CHUNK):
            part = x[start : start + CHUNK]
            yield len(part) / len(x), self._prepared(part), y[start : start + CHUNK]

    def _prepared(self, x: Tensor) -> Tensor:
        return x if self.task.prepare is None else self.task.prepare(x)

    def _loss(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        parts = [part.view(shape) for part, shape in zip(w.split(self.sizes), self.shapes, strict=True)]
        return self.task.loss(functional_call(self.module, dict(zip(self.names, parts, strict=True)), (x,)), y)
