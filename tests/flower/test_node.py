"""What a node reads from its own configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flwr.app import Context, RecordDict

from fedmim.errors import UserError
from fedmim.flower.node import Node

PARTITION = {"partition-id": 2, "num-partitions": 5}


def node(config, run_config=None):
    return Node.of(Context(1, 1, config, RecordDict(), run_config or {}), "cpu")


def test_the_nodes_own_configuration_wins_over_the_runs(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert node(PARTITION).state_dir == Path("/var/state/fedmim")
    assert node(PARTITION, {"state-dir": ""}).state_dir == Path("/var/state/fedmim")
    assert node(PARTITION, {"state-dir": "/run"}).state_dir == Path("/run")
    own = node({**PARTITION, "state-dir": "/own"}, {"state-dir": "/run"})
    assert (own.state_dir, own.partition, own.partitions, own.threads) == (Path("/own"), 2, 5, 1)
    monkeypatch.delenv("XDG_STATE_HOME")
    assert node(PARTITION).state_dir == Path.home() / ".local" / "state" / "fedmim"


def test_a_node_without_a_partition_is_told_how_to_give_it_one():
    for config in ({}, {"partition-id": 1}, {"partition-id": "x", "num-partitions": 2}):
        with pytest.raises(UserError, match="--node-config 'partition-id=I num-partitions=N'"):
            node(config)


def test_wrong_threads_and_devices_are_named():
    for threads in (0, -1, "many", 1.5):
        with pytest.raises(UserError, match="threads: must be a whole number of at least 1, or auto"):
            node({**PARTITION, "threads": threads})
    with pytest.raises(UserError, match="device: 'abacus' is not available; use cpu"):
        node({**PARTITION, "device": "abacus"})


def test_threads_hold_while_computing_and_the_generator_is_left_as_it_was():
    before, state = torch.get_num_threads(), torch.get_rng_state()
    with node({**PARTITION, "threads": 3}).computing():
        assert torch.get_num_threads() == 3
        torch.rand(5)
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)
    with node({**PARTITION, "threads": "auto"}).computing():
        assert torch.get_num_threads() == before
