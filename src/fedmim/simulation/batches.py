"""Minibatches of a client's data, which is in memory or read live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedmim.data import LiveData
from fedmim.errors import UserError
from fedmim.simulation.live import LiveSamples
from fedmim.simulation.randomness import key
from fedmim.simulation.samples import Samples, to_device
from fedmim.simulation.task import Task
from fedmim.structure import each, join, length, split


def own_samples(task: Task, client: int, seed: int, round: int, device: torch.device) -> Samples | LiveSamples:
    """A client's data in a round: in memory, or live, with the randomness of this client and round."""
    data = task.data(client)
    if isinstance(data, LiveData):
        return LiveSamples(data, key("live", seed, round, client), device)
    return to_device(data, device)


def size_of(samples: Samples | LiveSamples) -> int:
    """The number of samples."""
    return len(samples) if isinstance(samples, LiveSamples) else length(samples[1])


def in_parts(samples: Samples | LiveSamples, size: int) -> Iterator[Samples]:
    """All samples in order, in batches of this size."""
    if isinstance(samples, LiveSamples):
        return map(samples.read, torch.arange(len(samples)).split(size))
    return zip(*(split(either, size) for either in samples), strict=True)


def concatenated(parts: Sequence[Samples]) -> Samples:
    """The samples of several clients, one after the other."""
    try:
        return join([x for x, _ in parts]), join([y for _, y in parts])
    except (RuntimeError, ValueError) as error:
        raise UserError(
            "engine: vectorised cannot stack clients whose samples differ in shape or structure; pad them to the same "
            "shape, or use serial or processes"
        ) from error


def gather(
    task: Task, samples: Samples | LiveSamples, index: list[Tensor], generators: list[torch.Generator]
) -> Samples:
    """Minibatches of equal size, concatenated: select, augment each with its own generator, prepare."""
    where = index[0] if len(index) == 1 else torch.cat(index)
    x, y = samples.read(where) if isinstance(samples, LiveSamples) else samples_at(samples, where)
    if task.augment is not None:
        parts = split(x, len(index[0]))
        x = join([task.augment(part, own) for part, own in zip(parts, generators, strict=True)])
    return (x if task.prepare is None else task.prepare(x)), y


def samples_at(samples: Samples, where: Tensor) -> Samples:
    """The samples at these indices."""
    x, y = samples
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        where = where.to(x.device)
        return x.index_select(0, where), y.index_select(0, where)
    x, y = (each(lambda part: part.index_select(0, where.to(part.device)), either) for either in samples)
    return x, y
