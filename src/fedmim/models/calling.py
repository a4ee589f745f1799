"""How a model is called and its loss computed, with one-line errors for outputs that do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.func import functional_call

from fedmim.errors import UserError
from fedmim.structure import Structure

Loss: TypeAlias = Callable[[Any, Any], Tensor]
"""Mean loss of a minibatch, as a function of outputs and targets."""


def call(module: nn.Module, x: Structure, parameters: dict[str, Tensor] | None = None) -> Structure:
    """`module(x)` for one tensor, `module(*x)` for a tuple or list, `module(**x)` for a dict.

    With `parameters`, these take the place of the module's own.
    """
    positional, named = arguments(x)
    try:
        if parameters is None:
            return module(*positional, **named)
        return functional_call(module, parameters, positional, named)
    except TypeError as error:
        if reason := misfit(module, positional, named):
            way = "model(**x)" if named else "model(*x)" if type(x) in (tuple, list) else "model(x)"
            raise UserError(
                f"model: {type(module).__name__} cannot be called as {way}: {reason}; x must be one tensor, a tuple in "
                "the order of the arguments of `forward`, or a dict by their names"
            ) from error
        raise


def arguments(x: Structure) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and named arguments of a model."""
    if isinstance(x, Mapping):
        return (), dict(x)
    return (tuple(x), {}) if type(x) in (tuple, list) else ((x,), {})


def misfit(module: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> str | None:
    """Why `forward` does not take these arguments; None if it does."""
    try:
        inspect.signature(module.forward).bind(*positional, **named)
    except TypeError as error:
        return str(error)
    return None


def loss_of(loss: Loss, outputs: Structure, targets: Structure) -> Tensor:
    """The loss, or a one-line error if outputs and targets do not fit it."""
    try:
        return loss(outputs, targets)
    except Exception as error:
        if reason := unfit(loss, outputs, targets):
            raise UserError(f"loss: {reason}") from error
        raise


def unfit(loss: Loss, outputs: Structure, targets: Structure) -> str | None:
    """Why this loss cannot compare outputs and targets, if that is evident."""
    if isinstance(outputs, Tensor) and isinstance(targets, Tensor):
        if outputs.dim() and targets.dim() and len(outputs) != len(targets):
            return (
                f"a batch has {len(outputs)} outputs and {len(targets)} targets; the model must return one output for "
                "each sample, or `loss` compare them in another way"
            )
        return None
    of_torch = getattr(loss, "__module__", "").startswith("torch.")
    for what, value in (("the model returns", outputs), ("the targets are", targets)):
        if of_torch and not isinstance(value, Tensor):
            name = getattr(loss, "__name__", type(loss).__name__)
            return (
                f"{what} {described(value)}, and {name} takes one tensor; give Task a `loss` of outputs and targets, "
                "for example loss=lambda outputs, targets: F.cross_entropy(outputs['logits'], targets)"
            )
    return None


def described(value: Any) -> str:
    """The kind of a structure, for messages."""
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return f"a {kind} with {', '.join(map(str, value)) or 'nothing'}"
    return f"a {kind} of {len(value)}" if isinstance(value, tuple | list) else f"a {kind}"
