"""A node's own configuration: partition, state folder, device and threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Context

from fedmim.errors import UserError
from fedmim.simulation.engines import check_device


@dataclass(frozen=True)
class Node:
    """The node's own settings, from `flower-supernode --node-config`, otherwise from the run's configuration.

    partition-id, num-partitions   which client this is, and the number of clients
    state-dir                      where the client keeps files between rounds; default: $XDG_STATE_HOME/fedmim
    device                         cpu, cuda, cuda:1, ...; default: that of `client_app`
    threads                        per operation; 1 (default) gives the simulator's bits, "auto" leaves it to torch
    """

    partition: int
    partitions: int
    state_dir: Path
    device: torch.device
    threads: int | None

    @classmethod
    def of(cls, context: Context, device: str) -> Node:
        """Read from Flower's context."""
        config = {**context.run_config, **context.node_config}
        try:
            partition, partitions = int(config["partition-id"]), int(config["num-partitions"])
        except (KeyError, ValueError):
            raise UserError(
                "node-config: start the SuperNode with --node-config 'partition-id=I num-partitions=N'"
            ) from None
        threads = config.get("threads", 1)
        if threads != "auto" and (not isinstance(threads, int) or threads < 1):
            raise UserError(f"threads: must be a whole number of at least 1, or auto, got {threads!r}")
        return cls(
            partition=partition,
            partitions=partitions,
            state_dir=state_dir(context),
            device=check_device(str(config.get("device", device))),
            threads=None if threads == "auto" else int(threads),
        )

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Use the node's threads, and restore torch's number of threads and global generator at the end."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or before)
        try:
            with torch.random.fork_rng():
                yield
        finally:
            torch.set_num_threads(before)


def state_dir(context: Context) -> Path:
    """The folder in which a node keeps files between rounds."""
    given = {**context.run_config, **context.node_config}.get("state-dir")
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(str(given) if given else f"{home}/fedmim").expanduser()
