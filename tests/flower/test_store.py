"""The files that a client keeps on its own disk."""

from __future__ import annotations

import os
import time

import pytest
import torch

from fedmim.errors import UserError
from fedmim.flower.messages import Order
from fedmim.flower.store import FORGOTTEN, NodeStore

ZEROS = {"control": torch.zeros(3)}


def vectors(value):
    return {"control": torch.full((3,), float(value))}


def kept(store):
    return sorted(path.name for path in store.folder.glob("*"))


def test_a_client_that_never_took_part_has_zeros_whatever_lies_there(tmp_path):
    store = NodeStore(tmp_path, "a1", 4)
    store.put_slots(0, vectors(7))
    assert store.slots(ZEROS, 1, -1) == ZEROS


def test_the_server_says_whose_rounds_vectors_count(tmp_path):
    store = NodeStore(tmp_path, "a1", 4)
    for round in range(4):
        store.put_slots(round, vectors(round))
    assert torch.equal(store.slots(ZEROS, 4, 1)["control"], vectors(1)["control"])
    assert kept(store) == ["slots-000000.safetensors", "slots-000001.safetensors"]
    store.put_slots(4, vectors(4))
    store.slots(ZEROS, 5, 4)
    assert kept(store) == ["slots-000001.safetensors", "slots-000004.safetensors"]


def test_the_vectors_before_the_last_are_kept_for_a_server_that_goes_back(tmp_path):
    """The server resumes from its previous checkpoint, which refers to the client's previous vectors."""
    store = NodeStore(tmp_path, "a1", 4)
    for round, before in ((0, -1), (1, 0), (2, 1)):
        store.slots(ZEROS, round, before)
        store.put_slots(round, vectors(round))
    store.slots(ZEROS, 3, 2)
    assert torch.equal(store.slots(ZEROS, 2, 1)["control"], vectors(1)["control"])


def test_an_old_message_removes_nothing_that_came_after_it(tmp_path):
    store = NodeStore(tmp_path, "a1", 4)
    store.put_slots(1, vectors(1))
    store.put_slots(5, vectors(5))
    store.slots(ZEROS, 3, 1)
    assert kept(store) == ["slots-000001.safetensors", "slots-000005.safetensors"]


@pytest.mark.parametrize("damage", ["gone", "torn", "different vectors"])
def test_vectors_that_are_lost_name_the_file_and_the_remedy(damage, tmp_path):
    store = NodeStore(tmp_path, "a1", 4)
    store.put_slots(2, vectors(2) if damage != "different vectors" else {"dual": torch.zeros(3)})
    path = store.folder / "slots-000002.safetensors"
    if damage == "gone":
        path.unlink()
    elif damage == "torn":
        path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"slots-000002.safetensors: .* client 4 .* round 3 .*client_state=.server."):
        store.slots(ZEROS, 3, 2)


def test_runs_and_clients_are_apart_and_forgetting_one_leaves_the_others(tmp_path):
    stores = [NodeStore(tmp_path, run, client) for run in ("a1", "b2") for client in (0, 1)]
    for value, store in enumerate(stores):
        store.put_slots(0, vectors(value))
    stores[0].forget()
    for value, store in enumerate(stores[1:], 1):
        assert torch.equal(store.slots(ZEROS, 1, 0)["control"], vectors(value)["control"])
    stores[1].forget()
    assert [path.name for path in tmp_path.iterdir()] == ["b2"]


def test_a_run_that_was_never_ended_is_removed_after_thirty_days(tmp_path):
    old, recent = NodeStore(tmp_path, "a1", 0), NodeStore(tmp_path, "b2", 0)
    for store, age in ((old, FORGOTTEN + 60), (recent, FORGOTTEN - 3600)):
        store.put_slots(0, vectors(1))
        os.utime(store.folder, (time.time() - age,) * 2)
    NodeStore(tmp_path, "c3", 0).put_slots(0, vectors(1))
    assert not old.folder.exists()
    assert recent.folder.exists()


def test_a_message_cannot_name_a_folder_elsewhere():
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    good = Order("a1", 0, 0, 0.1, -1, 0, "FedAvg()", "{}").config()
    for name, value in (("fedmim-run", "../../etc"), ("fedmim-client", "../x")):
        message = Message(RecordDict({"config": ConfigRecord({**good, name: value})}), 1, "train")
        with pytest.raises(UserError, match="is not valid"):
            Order.of(message)
