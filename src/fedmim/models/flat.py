"""FlatModel: an nn.Module as a function of one flat vector, with its loss and gradient at any point."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from fedmim.errors import UserError
from fedmim.models import exact_rewrites
from fedmim.models.calling import Loss, call, loss_of
from fedmim.models.tracing import Traced
from fedmim.structure import Structure, each, tensors


class FlatModel:
    """The trainable parameters are views into one vector (d,), in the order of `module.named_parameters()`.

    `point_at` re-binds the views to another vector without copying, so updating that vector in place updates the model.
    Buffers (running statistics) are a separate float64 vector. Inputs, targets and outputs are tensors or structures of
    tensors: see `call`.
    """

    def __init__(self, module: nn.Module, loss: Loss, device: torch.device | str = "cpu") -> None:
        self.module = copy.deepcopy(module).to(device)
        self.loss = loss
        if torch.device(device).type == "cpu":
            exact_rewrites.adopt(self.module)
        named = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        if not named:
            raise UserError("model: has no trainable parameters")
        dtypes = {p.dtype for p in named.values()}
        if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
            raise UserError(
                f"model: parameters must share one float dtype, got {sorted(map(str, dtypes))}; try model.float()"
            )
        self.names = tuple(named)
        self.shapes = [p.shape for p in named.values()]
        self.sizes = [p.numel() for p in named.values()]
        self._parameters = list(named.values())
        self._buffers = averaged_buffers(self.module)
        has_convolutions = any(isinstance(part, nn.Conv2d) for part in self.module.modules())
        self._channels_last = None if has_convolutions else False  # None: not tried yet
        self._stacked: Traced | None = None  # refers to this object, so only made when needed
        self._structure: Any = None  # of the batches that `_stacked` takes; None: two tensors
        self._at = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self._bind()
        self._landing: dict[int, Tensor] = {}  # where gradients are written, by parameter index
        for place, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(partial(_land, self._landing, place))

    def unflatten(self, w: Tensor) -> list[Tensor]:
        """One view per parameter; for a stack (S, d), views of shape (S, ...)."""
        parts = w.split(self.sizes, dim=-1)
        return [part.view(*w.shape[:-1], *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    @property
    def params(self) -> Tensor:
        """The current parameter vector, (d,)."""
        return self._at

    def point_at(self, w: Tensor) -> nn.Module:
        """The module, with its parameters set to views of w."""
        if w.data_ptr() != self._at.data_ptr():
            self._at = w
            self._bind()
        return self.module

    def _bind(self) -> None:
        for parameter, view in zip(self._parameters, self.unflatten(self._at), strict=True):
            parameter.data = view

    def loss_and_gradient(self, w: Tensor, x: Structure, y: Structure) -> tuple[Tensor, Tensor]:
        """The loss of a minibatch at w, and its gradient (d,)."""
        loss = loss_of(self.loss, call(self.point_at(w), self.laid_out(x)), y)
        g = torch.empty_like(w)
        self._landing |= enumerate(self.unflatten(g))
        loss.backward()
        for unused in self._landing.values():
            unused.zero_()
        self._landing.clear()
        return loss.detach(), g

    def laid_out(self, x: Structure) -> Structure:
        """The batch in the faster memory format: channels last for convolutional models that support it."""
        if self._channels_last is False or not any(map(is_images, tensors(x))):
            return x
        if self._channels_last is None:
            self._channels_last = self._admits_channels_last(x)
        return each(channels_last, x) if self._channels_last else x

    @torch.no_grad()
    def _admits_channels_last(self, x: Structure) -> bool:
        """Whether the model runs on a channels-last batch; a `view` in its forward may fail, unlike a `reshape`."""
        buffers = self.buffers
        try:
            with torch.random.fork_rng():
                call(self.module, each(channels_last, x))
        except RuntimeError:
            return False
        finally:
            self.buffers = buffers
        return True

    def stacked_loss_and_gradient(self, w: Tensor, x: Structure, y: Structure) -> tuple[Tensor, Tensor]:
        """The losses (S,) and gradients (S, d) of S models at w (S, d), each on its own minibatch x (S, B, ...)."""
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            parts, structure = [x, y], None
        else:
            parts, structure = tree_flatten((x, y))
        if self._stacked is None or structure != self._structure:
            self._stacked, self._structure = self._traced(structure), structure
        losses, gradients = self._stacked(w, *parts)
        return losses, gradients

    def _traced(self, structure: Any) -> Traced:
        """The losses and gradients as a function of w and the tensors of a batch (x, y) of this structure."""

        def loss(parameters: list[Tensor], x: Structure, y: Structure) -> Tensor:
            named = dict(zip(self.names, parameters, strict=True))
            return loss_of(self.loss, call(self.module, x, named), y)

        batched = vmap(grad_and_value(loss))

        def losses_and_gradients(w: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
            x, y = parts if structure is None else tree_unflatten(parts, structure)
            gradients, losses = batched(self.unflatten(w), x, y)
            return losses, torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)

        return Traced(losses_and_gradients)

    @property
    def buffer_bytes(self) -> int:
        """The size of the buffers in bytes, in their own dtypes, as they are sent."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self._buffers)

    @property
    def buffer_tensors(self) -> list[Tensor]:
        """A copy of each buffer in its own dtype, as it is sent."""
        return [buffer.clone() for buffer in self._buffers]

    @property
    def buffers(self) -> Tensor:
        """A copy of the buffers as one float64 vector (b,); empty if there are none."""
        return flat_buffers(self._buffers)

    @buffers.setter
    def buffers(self, values: Tensor) -> None:
        parts = values.split([buffer.numel() for buffer in self._buffers]) if self._buffers else ()
        for buffer, part in zip(self._buffers, parts, strict=True):
            part = part.view(buffer.shape)
            buffer.copy_(part if buffer.is_floating_point() else part.round())

    def module_at(self, w: Tensor, buffers: Tensor) -> nn.Module:
        """An independent module with these parameters and buffers."""
        self.buffers = buffers
        module = copy.deepcopy(self.point_at(w)).eval()
        exact_rewrites.release(module)
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()  # no longer a view into the flat vector
        return module


def _land(landing: dict[int, Tensor], place: int, parameter: Tensor) -> None:
    """Copy a parameter's gradient into the flat vector while it is in the cache, and free it."""
    assert parameter.grad is not None
    landing.pop(place).copy_(parameter.grad)
    parameter.grad = None


def is_images(x: Any) -> bool:
    """Whether it is a batch with channels, on a CPU."""
    return isinstance(x, Tensor) and x.dim() == 4 and x.device.type == "cpu"


def channels_last(x: Tensor) -> Tensor:
    """Images in the channels-last format; other tensors unchanged."""
    return x.contiguous(memory_format=torch.channels_last) if is_images(x) else x


def averaged_buffers(module: nn.Module) -> list[Tensor]:
    """The buffers to average like the parameters; excludes constants such as a mask of -inf."""
    return [buffer for buffer in module.buffers() if buffer.isfinite().all()]


def flat_buffers(buffers: list[Tensor]) -> Tensor:
    """A copy of these buffers as one float64 vector (b,)."""
    flat = [buffer.reshape(-1).double() for buffer in buffers]
    return torch.cat(flat) if flat else torch.empty(0, dtype=torch.float64)
