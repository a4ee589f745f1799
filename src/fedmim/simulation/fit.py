"""Whether model, loss and data fit each other, tried on a few samples before a run is trained or written."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedmim.data import Clients, LiveData
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.models.calling import call, loss_of
from fedmim.simulation.samples import Samples, to_device
from fedmim.simulation.task import Task
from fedmim.structure import each

TRIED = 2  # samples of each part
IGNORED = -100  # the label that cross_entropy leaves out
LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))  # of torch and fedmim


@torch.no_grad()
def check_fit(model: FlatModel, task: Task) -> None:
    """Reject a model that fails on the data, a loss that does not take its outputs, and labels that it has no output
    for, in one line.

    The test data and the first client are tried, and all labels. Clients that are read on access are not.
    """
    model.module.eval()
    outputs = _try(model, task, "the test data", task.test)
    if isinstance(task.clients, Clients | list | tuple) and not isinstance(data := task.data(0), LiveData):
        outputs = _try(model, task, f"the data of client {task.name(0)}", data)
    if task.loss is F.cross_entropy and isinstance(outputs, Tensor):
        for where, y in _labels(task):
            _check_labels(where, outputs, y)


def _try(model: FlatModel, task: Task, where: str, samples: Samples) -> Any:
    """The outputs for a few samples."""
    x, y = to_device(tuple(each(lambda part: part[:TRIED], side) for side in samples), model.params.device)
    outputs = _outputs(model, task, where, x)
    try:
        loss_of(task.loss, outputs, y)
    except UserError:
        raise
    except Exception:  # it may need more samples; otherwise training raises it again
        pass
    return outputs


def _labels(task: Task) -> Iterator[tuple[str, Any]]:
    """The targets in memory, with the names of their data in errors."""
    yield "the test data", task.test[1]
    if isinstance(task.clients, Clients):
        yield "the training data", task.clients.y
    elif isinstance(task.clients, list | tuple):
        for client in range(len(task.clients)):
            if not isinstance(data := task.data(client), LiveData):
                yield f"client {task.name(client)}", data[1]


def _outputs(model: FlatModel, task: Task, where: str, x: Any) -> Any:
    """The outputs for a few samples."""
    what = "prepare:"
    try:
        with torch.random.fork_rng():
            x = x if task.prepare is None else task.prepare(x)
            what = f"model: {type(model.module).__name__}"
            return call(model.module, x)
    except UserError:
        raise
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"{what} fails on {where} ({text}{_line(error)}); change the model, or the shape or type of the data"
        ) from error


def _line(error: Exception) -> str:
    """The user's line that failed; empty if there is none."""
    own = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(LIBRARIES)]
    return f", {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def _check_labels(where: str, outputs: Tensor, y: Any) -> None:
    """Reject labels without an output, which PyTorch reports in the middle of a run."""
    if not isinstance(y, Tensor) or y.is_floating_point() or outputs.dim() != y.dim() + 1:
        return
    kept, classes = y[y != IGNORED], outputs.shape[1]
    low, high = (int(kept.min()), int(kept.max())) if kept.numel() else (0, 0)
    if low < 0 or high >= classes:
        raise UserError(
            f"model: {where} has the label {low if low < 0 else high}, and the model has {classes} outputs, for the "
            f"labels 0 to {classes - 1}; number the classes from 0, or give the model more outputs"
        )
