"""Tracing: record the tensor operations of a function once and replay them without the Python overhead.

`vmap(grad(loss))` on a small model spends most of its time in Python. Its tensor operations depend only on the shapes
of the arguments, so for shapes that occur often they are recorded once and replayed by TorchScript's interpreter, with
bit-identical results. Inductor is no faster and takes seconds to compile.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

Function = Callable[..., tuple[Tensor, ...]]

TRACE_AFTER = 30  # calls with the same shapes; tracing costs about as much as fifty calls
MOST_TRACES = 64


class Traced:
    """A function that is traced for shapes that occur often."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._calls: Counter[Any] = Counter()
        self._traces: dict[Any, Function] = {}

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Call the function, or its trace if there is one."""
        shapes = tuple((argument.shape, argument.dtype) for argument in arguments)
        if shapes in self._traces:
            return self._traces[shapes](*arguments)
        self._calls[shapes] += 1
        if self._calls[shapes] >= TRACE_AFTER and len(self._traces) < MOST_TRACES:
            self._traces[shapes] = trace(self._function, *arguments)
        return self._function(*arguments)


def trace(function: Function, *arguments: Tensor) -> Function:
    """Trace the function for arguments of these shapes; returns the function itself if the trace differs."""
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to import

    module = make_fx(function)(*arguments)
    drop_idle(module)
    replay: Function = module.forward
    with warnings.catch_warnings(), suppress(RuntimeError):  # TorchScript does not support all operations
        warnings.filterwarnings("ignore", message=".*deprecated", category=DeprecationWarning)
        replay = torch.jit.trace(module, arguments, check_trace=False)
    expected = function(*arguments)
    for _ in range(3):  # its executor optimises during the first two calls
        if not all(torch.equal(one, other) for one, other in zip(expected, replay(*arguments), strict=True)):
            return function
    return replay


def drop_idle(module: GraphModule) -> None:
    """Remove operations that return their argument: views and expansions to the same shape, products with 1."""
    aten = torch.ops.aten
    views = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
    for node in list(module.graph.nodes):
        source = node.args[0] if node.args else None
        if not isinstance(source, Node):
            continue
        same_view = node.target in views and _layout(node) == _layout(source)
        times_one = node.target is aten.mul.Scalar and node.args[1] == 1
        if same_view or times_one:
            node.replace_all_uses_with(source)
    module.graph.eliminate_dead_code()
    module.recompile()


def _layout(node: Node) -> tuple[Any, ...]:
    known = node.meta["tensor_meta"]
    return tuple(known.shape), tuple(known.stride)
