"""The files that a client keeps on its own disk."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import torch

from fedmim.errors import UserError
from fedmim.flower.messages import Order
from fedmim.flower.stamped import STAMP
from fedmim.flower.store import FORGOTTEN, NodeStore

ZEROS = {"control": torch.zeros(3)}


def vectors(value):
    return {"control": torch.full((3,), float(value))}


def kept(store):
    return sorted(path.name for path in store.folder.glob("*.safetensors"))


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


def everything(folder):
    """Every path below a folder, with the content of files; links are not followed."""
    paths = [Path(base) / name for base, folders, files in os.walk(folder) for name in (*folders, *files)]
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def grow_old(root):
    for base, _, _ in os.walk(root):
        os.utime(base, (time.time() - 2 * FORGOTTEN,) * 2)


def somebodys_home(home):
    """Folders that look like those of a run, and belong to somebody else."""
    for name in ("mnist/0/train.bin", "photos/0/1.jpg", "cafe/0/latte.txt", "ab12/0/model-000001.safetensors", "0/x"):
        path = home / name
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    stamp = {"made by": "someone else", "run": "beef", "client": 0}
    for name, content in (("beef", json.dumps(stamp)), ("bad1", "{"), ("bad2", "[" * 100_000), ("bad3", "\xff")):
        (home / name / "0").mkdir(parents=True)
        (home / name / "0" / STAMP).write_text(content, encoding="latin-1")


def test_a_state_dir_that_is_somebodys_home_loses_none_of_its_files(tmp_path):
    somebodys_home(tmp_path)
    grow_old(tmp_path)
    before = everything(tmp_path)
    store = NodeStore(tmp_path, "c3", 0)
    store.put_slots(0, vectors(1))
    assert before.items() <= everything(tmp_path).items()
    for run in ("mnist", "photos", "cafe", "ab12", "beef", "bad1", "bad2", "bad3"):
        NodeStore(tmp_path, run, 0).forget()
    NodeStore(tmp_path, "ab12", 0).put_models({}, 9)  # would remove the models before round 9
    store.forget()
    assert everything(tmp_path) == before


@pytest.mark.parametrize("what", ["file", "folder", "link", "stamp of another run", "stamp of another client"])
def test_a_folder_with_anything_that_fedmim_did_not_write_is_not_removed(what, tmp_path):
    store = NodeStore(tmp_path / "state", "a1", 0)
    store.put_slots(0, vectors(1))
    inside = store.folder / "slots-000007.safetensors"
    if what == "file":
        (store.folder / "notes.txt").write_text("mine")
    elif what == "folder":
        inside.mkdir()
    elif what == "link":
        (tmp_path / "precious").write_text("mine")
        inside.symlink_to(tmp_path / "precious")
    else:
        stamp = json.loads((store.folder / STAMP).read_text())
        changed = {"run": "b2"} if what == "stamp of another run" else {"client": 1}
        (store.folder / STAMP).write_text(json.dumps(stamp | changed))
    grow_old(tmp_path / "state")
    before = everything(tmp_path)
    store.forget()
    NodeStore(tmp_path / "state", "b2", 0).put_slots(0, vectors(1))
    assert before.items() <= everything(tmp_path).items()


@pytest.mark.parametrize("where", ["run", "client"])
def test_a_symbolic_link_to_a_stamped_folder_is_not_followed(where, tmp_path):
    other = NodeStore(tmp_path / "other", "a1", 0)
    other.put_slots(0, vectors(1))
    root = tmp_path / "state"
    link, target = (root / "a1", other.folder.parent) if where == "run" else (root / "a1" / "0", other.folder)
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    grow_old(tmp_path)
    before = everything(tmp_path)
    store = NodeStore(root, "a1", 0)
    store.forget()
    NodeStore(root, "b2", 0).put_slots(0, vectors(1))
    with pytest.raises(UserError, match="a1/0 is not fedmim's; name a different state-dir"):
        store.put_slots(1, vectors(1))
    assert before.items() <= everything(tmp_path).items()


def test_what_a_killed_process_left_behind_is_removed_with_the_rest(tmp_path):
    store = NodeStore(tmp_path, "a1", 0)
    store.put_slots(0, vectors(1))
    (store.folder / ".slots-000001.safetensors.part").write_bytes(b"half")
    store.forget()
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_stamp_gets_one_if_its_files_are_all_fedmims(tmp_path):
    """A process that was killed before it wrote the stamp."""
    store = NodeStore(tmp_path, "a1", 0)
    store.put_slots(0, vectors(1))
    (store.folder / STAMP).unlink()
    store.put_slots(1, vectors(2))
    store.forget()
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_to_a_folder_of_somebody_else(tmp_path):
    (tmp_path / "a1" / "0").mkdir(parents=True)
    (tmp_path / "a1" / "0" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="a1/0 is not fedmim's; name a different state-dir with --node-config"):
        NodeStore(tmp_path, "a1", 0).put_slots(0, vectors(1))
    assert [path.name for path in (tmp_path / "a1" / "0").iterdir()] == ["thesis.tex"]


def test_a_message_cannot_name_a_folder_elsewhere():
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    good = Order("a1", 0, 0, 0.1, -1, 0, "FedAvg()", "", "{}").config()
    for name, value in (("fedmim-run", "../../etc"), ("fedmim-client", "../x")):
        message = Message(RecordDict({"config": ConfigRecord({**good, name: value})}), 1, "train")
        with pytest.raises(UserError, match="is not valid"):
            Order.of(message)
