"""Where the data of a problem comes from: a data set, or a task made by the user's own code or given in Python.

The last data set and task are cached. Those in shared memory, which a job has received, are not loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fedmim.data.catalogue import find_descriptor
from fedmim.errors import UserError
from fedmim.experiments.own_code import OwnCode

if TYPE_CHECKING:
    from torch import nn

    from fedmim.data import Dataset
    from fedmim.simulation.task import Task

IN_MEMORY = "task:"  # before the fingerprint of a task that was given in Python


def own_data(data: str) -> OwnCode | None:
    """The user's own function that makes the task, if `data` names one: file.py:function."""
    code = OwnCode.named(data)
    return None if code is None or find_descriptor(data) else code


@dataclass(frozen=True)
class Source:
    """What determines the tensors of a problem. Problems with other splits, models and seeds have the same."""

    data: str
    data_dir: Path
    image_size: int | None
    validation: float

    def load(self) -> Dataset:
        """The data set."""
        return _shared.get(self) or _data_set(self)


@dataclass(frozen=True)
class TaskSource:
    """What determines a task with code of the user. It is shared as a whole: only one process imports the code."""

    data: Source
    split: tuple[tuple[str, Any], ...]  # the other arguments of `Task.of_data`
    model: str
    seed: int

    def load(self) -> Task:
        """The task."""
        return _shared.get(self) or _own_task(self)


AnySource: TypeAlias = Source | TaskSource

_shared: dict[AnySource, Any] = {}  # at most one
_in_memory: dict[str, Task] = {}


def use_shared(source: AnySource, value: Any) -> None:
    """Use this data set or task, which is in shared memory, instead of loading it, until the next one is shared."""
    forget_data()
    _shared[source] = value


@contextmanager
def in_memory(name: str, task: Task) -> Iterator[None]:
    """Within the block, the data of this name is this task."""
    _in_memory[name] = task
    try:
        yield
    finally:
        del _in_memory[name]
        forget_data()


def check_in_memory(data: str) -> None:
    """Reject a task that was given in Python if it is not there."""
    if data.startswith(IN_MEMORY) and data not in _in_memory:
        raise UserError(
            f"data: {data} was given in Python and is not in a file; resume it there, with "
            "fedmim.compare(..., out=..., resume=True) or fedmim.tune(..., out=...)"
        )


def forget_data() -> None:
    """Free the cached task and data set."""
    task_of.cache_clear()
    _own_task.cache_clear()
    _data_set.cache_clear()
    _shared.clear()


@lru_cache(maxsize=1)
def task_of(source: AnySource, split: tuple[tuple[str, Any], ...], model: str, seed: int) -> Task:
    """The task of a source. The last one is cached: the methods of a comparison share it."""
    from fedmim.simulation.task import Task

    if isinstance(source, TaskSource):
        return source.load()
    return Task.of_data(source.load(), **dict(split), model=model, seed=seed)


@lru_cache(maxsize=1)
def _data_set(source: Source) -> Dataset:
    from fedmim.data import load, with_validation

    dataset = load(source.data, source.data_dir, source.image_size)
    return with_validation(dataset, source.validation) if source.validation else dataset


@lru_cache(maxsize=1)
def _own_task(source: TaskSource) -> Task:
    from fedmim.simulation.task import Task
    from fedmim.simulation.validation import hold_out

    name, code = source.data.data, own_data(source.data.data)
    check_in_memory(name)
    if name not in _in_memory and code is None:
        dataset = source.data.load()
        model = _own_model(source.model, dataset, source.seed)
        return Task.of_data(dataset, **dict(source.split), model=model, seed=source.seed)
    task = _in_memory[name] if code is None else _called(code, "data", source.seed, {"seed": source.seed})
    if not isinstance(task, Task):
        assert code is not None
        raise UserError(f"data: {code.short} must return a fedmim.Task, got {type(task).__name__}")
    return hold_out(task, source.data.validation) if source.data.validation else task


def _own_model(model: str, dataset: Dataset, seed: int) -> nn.Module:
    """The user's own model, with initial weights from the seed."""
    from torch import nn

    code = OwnCode.named(model)
    assert code is not None
    x, classes = dataset.train[0], dataset.classes
    offered = {"input_shape": tuple(x.shape[1:]), "classes": classes, "tokens": dataset.tokens}
    made = _called(code, "model", seed, offered)
    if not isinstance(made, nn.Module):
        raise UserError(f"model: {code.short} must return a torch.nn.Module, got {type(made).__name__}")
    return made


def _called(code: OwnCode, what: str, seed: int, offered: dict[str, Any]) -> Any:
    """Call the user's code with random states from the seed; those of this process do not change."""
    from fedmim.data.global_randomness import KeyedRandomness

    with KeyedRandomness(seed % 2**32).active():
        return code.call(what, offered)
