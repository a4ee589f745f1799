"""Shared parts of the peers' programs: taking turns, the data, and local training."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from typing import TextIO

import torch
from torch import Tensor, nn

from benchmarks.workloads import WORKLOADS, Workload

LR, WEIGHT_DECAY = 0.01, 1e-3
DONE = "round ended"


def workload() -> Workload:
    """The workload named on the command line."""
    return WORKLOADS[sys.argv[1]]


def turns() -> Iterator[None]:
    """Yields once per line on standard input; requesting the next item reports on standard output that the round ended.

    Loop over it for a library that can be stepped; call `next` in a callback for one that cannot. Standard output is
    reserved for this: everything else that is printed, also by child processes, goes to standard error.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return _turns(replies)


def _turns(replies: TextIO) -> Iterator[None]:
    while sys.stdin.readline():
        yield
        print(DONE, file=replies, flush=True)


class Batches:
    """A client's minibatches, reshuffled in each iteration: a DataLoader without its cost per sample."""

    def __init__(self, x: Tensor, y: Tensor, size: int) -> None:
        self.x, self.y, self.size = x, y, size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in torch.randperm(len(self.y)).split(self.size):
            yield self.x[chosen], self.y[chosen]


def sgd(module: nn.Module) -> torch.optim.SGD:
    """The clients' optimiser."""
    return torch.optim.SGD(module.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)


def train(module: nn.Module, batches: Batches, epochs: int) -> None:
    """Local training, for libraries that leave it to the user."""
    optimizer, criterion = sgd(module), nn.CrossEntropyLoss()
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            criterion(module(x), y).backward()
            optimizer.step()


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def name_torchvision_operators() -> None:
    """Make torchvision importable with the CPU build of torch.

    PyPI's torchvision is built for CUDA, so its operators do not load here, and its import stops at two of their names.
    Nothing in the workloads calls them.
    """
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
