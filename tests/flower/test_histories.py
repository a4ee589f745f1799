"""FedMIM's history kept by clients: a client without the past models receives them in the same round."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from loopback import assert_same, federation, run_simulator
from problems import BUSY, SIZES, classification

import fedmim
from fedmim.flower import FlowerStrategy, client_app

TASK = classification(dtype=torch.float32)
SETTINGS = fedmim.Settings(**BUSY | {"rounds": 7, "participation": 1.0})
MODEL = 4 * sum(p.numel() for p in TASK.model.parameters())  # bytes


def make(history, disks, settings=SETTINGS, **options):
    algorithm, settings = fedmim.FedMIM(), replace(settings, history=history)
    app = client_app(lambda partition, context: TASK, algorithm, settings)
    grid = federation(app, len(SIZES), disks)
    return FlowerStrategy(algorithm, TASK.model, settings, clients=len(SIZES), wait=0.0, **options), grid


def start(strategy, grid, before=None):
    """The models after each round; `before(round)` is called before each round except the first."""
    models = []

    def see(round, arrays):
        models.append(arrays.to_torch_state_dict())
        if before:
            before(round + 1)

    strategy.start(grid, evaluate_fn=see)
    return models[1:]


def trained(grid, node):
    """What a node was sent for training, one set of names per message."""
    messages = [m for m in grid.sent if m.metadata.dst_node_id == node and m.metadata.message_type == "train"]
    # The newest model is the state dict in "arrays"; its round is in the configuration.
    older = [set(message.content.array_records.get("fedmim", {})) for message in messages]
    newest = [f"model.{message.content['config']['fedmim-round']}" for message in messages]
    return [names | {name} for names, name in zip(older, newest, strict=True)]


@pytest.mark.parametrize("history", ["catch-up", "broadcast"])
@pytest.mark.parametrize("loss", ["whole disk", "one file", "torn file"])
def test_a_client_that_lost_its_disk_gets_what_it_needs_and_reaches_the_same_model(history, loss, tmp_path):
    strategy, grid = make(history, tmp_path)
    disk, node = tmp_path / "disk-2", list(grid.nodes)[2]

    def lose(round):
        if round == 5:
            if loss == "whole disk":
                shutil.rmtree(disk)
            else:
                path = sorted(disk.rglob("model-*.safetensors"))[-1]
                path.unlink() if loss == "one file" else path.write_bytes(path.read_bytes()[:50])

    models = start(strategy, grid, lose)
    assert_same(models, run_simulator(fedmim.FedMIM(), TASK, SETTINGS)[1])
    assert not strategy.failures
    sent = trained(grid, node)
    assert sent[3:7] == [{"model.3"}, {"model.4"}, {"model.2", "model.3", "model.4"}, {"model.5"}]
    clean = 7 * MODEL
    assert [record.bytes_down for record in strategy.history][3:6] == [clean, clean + 3 * MODEL, clean]


@pytest.mark.parametrize("history", ["catch-up", "broadcast"])
def test_a_client_that_joins_late_gets_what_it_needs(history, tmp_path):
    strategy, grid = make(history, tmp_path, min_available_nodes=6)
    node = list(grid.nodes)[2]
    late = grid.nodes.pop(node)

    def join(round):  # uses the current grid and node
        if round == 5:
            grid.nodes[node] = late

    models = start(strategy, grid, join)
    assert [len(record.clients) for record in strategy.history] == [6, 6, 6, 6, 7, 7, 7]
    complete, then = {"model.2", "model.3", "model.4"}, [{"model.5"}, {"model.6"}]
    first = [complete] if history == "catch-up" else [{"model.4"}, complete]
    assert trained(grid, node) == [*first, *then]
    reference, grid = make("server", tmp_path / "reference", min_available_nodes=6)
    late = grid.nodes.pop(node)
    assert_same(models, start(reference, grid, join))


def test_files_of_another_run_are_not_taken_for_this_ones(tmp_path):
    """Two runs with different seeds on the same disks; the first leaves its files."""
    first, grid = make("catch-up", tmp_path, folder=tmp_path / "kept")  # a run with a folder keeps its files
    start(first, grid)
    assert list(tmp_path.glob("disk-*/*/*/model-*"))
    other = fedmim.Settings(**BUSY | {"rounds": 4, "participation": 1.0, "seed": 1})
    second, grid = make("catch-up", tmp_path, other)
    assert_same(start(second, grid), run_simulator(fedmim.FedMIM(), TASK, other)[1])


@pytest.mark.parametrize("history", ["catch-up", "broadcast"])
def test_clients_keep_no_more_models_than_the_method_needs_and_none_after_the_run(history, tmp_path):
    strategy, grid = make(history, tmp_path)
    kept = []
    start(strategy, grid, lambda round: kept.append(len(list((tmp_path / "disk-3").rglob("*.safetensors")))))
    assert kept == [0, 1, 2, 3, 3, 3, 3, 3]  # J + 1
    assert not list(tmp_path.glob("disk-*/*"))


def test_broadcast_reaches_clients_that_do_not_train(tmp_path):
    settings = fedmim.Settings(**BUSY | {"rounds": 5, "participation": 0.3})  # 2 of 7
    strategy, grid = make("broadcast", tmp_path, settings)
    assert_same(start(strategy, grid), run_simulator(fedmim.FedMIM(), TASK, settings)[1])
    assert [record.bytes_down for record in strategy.history] == [7 * MODEL] * 5  # no client lacked a model
    listened = [m for m in grid.sent if m.metadata.message_type == "query.listen"]
    assert len(listened) == 5 * 5
