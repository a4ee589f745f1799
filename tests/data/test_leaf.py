"""LEAF's files: users are clients with their own test data, and damage is named with its file and user."""

import json
import os

import numpy as np
import pytest
import small_leaf
import torch
from small_leaf import content, femnist, shakespeare, write

from fedmim import FedAvg, Task, rounds
from fedmim.data import Clients, fetch, leaf, load, with_validation
from fedmim.data.shakespeare import VOCABULARY
from fedmim.errors import UserError
from fedmim.experiments.config import Config, defaults


def text_of(indices):
    return "".join(VOCABULARY[index] for index in indices)


def test_the_vocabulary_is_leafs_80_characters():
    """The same characters, written down another way."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    characters = {*letters, *letters.lower(), *"0123456789", *"\n !\"&'(),-.:;>?[]}"}
    assert list(VOCABULARY) == sorted(characters)
    assert len(VOCABULARY) == 80


def test_shakespeare_gives_each_role_its_own_lines(tmp_path):
    parts = shakespeare()
    write(tmp_path, "shakespeare", parts)
    data = load("shakespeare", tmp_path)
    assert data.client_names == tuple(sorted(small_leaf.ROLES))
    assert (data.tokens, data.classes) == (80, 80)
    for part, (x, y), places in (("train", data.train, data.natural), ("test", data.test, data.client_tests)):
        assert (x.dtype, y.dtype, x.shape[1:]) == (torch.uint8, torch.int64, (80,))
        assert torch.equal(torch.cat(places).sort().values, torch.arange(len(x)))
        for name, own in zip(data.client_names, places, strict=True):
            expected = parts[part]["user_data"][name]
            assert [text_of(window) for window in x[own].tolist()] == expected["x"]
            assert [VOCABULARY[label] for label in y[own].tolist()] == expected["y"]
    assert data.prepare(data.train[0][:2]).dtype == torch.int64


def test_femnist_keeps_leafs_values_and_writers_in_several_files(tmp_path):
    parts = femnist()
    one, two = (dict(list(parts["train"]["user_data"].items())[cut]) for cut in (slice(2), slice(2, None)))
    write(tmp_path, "femnist", parts | {"train": [content(one), content(two)]})
    data = load("femnist", tmp_path)
    assert data.client_names == ("f0000_14", "f0001_02", "f0100_00")
    assert [len(own) for own in data.natural] == [5, 3, 2]
    assert data.train[0].shape == (10, 1, 28, 28)
    for part, (x, y), places in (("train", data.train, data.natural), ("test", data.test, data.client_tests)):
        for name, own in zip(data.client_names, places, strict=True):
            expected = parts[part]["user_data"][name]
            assert np.allclose(data.prepare(x[own]).flatten(1), expected["x"], rtol=1e-6, atol=0)
            assert y[own].tolist() == expected["y"]


def test_the_folder_that_leaf_creates_is_read_in_place(tmp_path):
    write(tmp_path / "shakespeare", "data", shakespeare())
    (tmp_path / "shakespeare" / "preprocess").mkdir()
    assert len(load("shakespeare", tmp_path).natural) == 2
    assert fetch("shakespeare", tmp_path) == tmp_path / "shakespeare" / "data"


def test_users_without_training_data_are_tested_but_are_no_clients(tmp_path):
    """As after `-t user`, where test users are not those of the training part."""
    parts = shakespeare()
    other = content({"LEAR_FOOL": parts["test"]["user_data"]["LEAR_KENT"]})
    write(tmp_path, "shakespeare", parts | {"test": other})
    data = load("shakespeare", tmp_path)
    assert len(data.test[1]) == 2
    assert [len(own) for own in data.client_tests] == [0, 0]


def test_a_validation_part_gives_clients_their_own_held_out_samples(tmp_path):
    write(tmp_path, "shakespeare", shakespeare(samples=60))
    whole = load("shakespeare", tmp_path)
    data = with_validation(whole, 0.4)
    assert min(len(own) for own in data.client_tests) > 5
    for client, own in enumerate(whole.natural):
        kept = data.train[0][data.natural[client]]
        held = data.test[0][data.client_tests[client]]
        assert sorted(torch.cat([kept, held]).tolist()) == sorted(whole.train[0][own].tolist())


def test_a_task_takes_all_natural_clients_for_0(tmp_path):
    write(tmp_path, "shakespeare", shakespeare())
    task = Task.named("shakespeare", split="natural", clients=0, model="lstm", data_dir=tmp_path)
    assert [task.size(client) for client in range(2)] == [6, 7]
    with pytest.raises(UserError, match="clients: must be 2, the number of natural clients, or 0 for all, got 100"):
        Task.named("shakespeare", split="natural", model="lstm", data_dir=tmp_path)
    source = load("shakespeare", tmp_path)
    assert Clients(*source.test, source.client_tests).sizes == [2, 2]


@pytest.mark.parametrize("model", ["lstm", "transformer", "cnn", "lenet"])
def test_it_trains_with_its_defaults(tmp_path, model):
    name, parts = ("femnist", femnist()) if model in ("cnn", "lenet") else ("shakespeare", shakespeare())
    write(tmp_path, name, parts)
    values = defaults(name) | {"rounds": 3, "participation": 1.0, "model": model, "data_dir": str(tmp_path)}
    config = Config.of(values, name)
    first, _, last = rounds(FedAvg(), config.task(), config.settings)
    assert last.train_loss < first.train_loss
    assert last.test_accuracy is not None


def test_the_cache_is_used_until_a_file_changes(tmp_path, monkeypatch):
    folder = write(tmp_path, "shakespeare", shakespeare())
    first = load("shakespeare", tmp_path)
    reads, read = [], leaf.Leaf._read
    monkeypatch.setattr(leaf.Leaf, "_read", lambda self, file: reads.append(file) or read(self, file))
    again = load("shakespeare", tmp_path)
    assert not reads
    assert all(
        torch.equal(one, two) for one, two in zip(first.train + first.test, again.train + again.test, strict=True)
    )
    assert (first.client_names, len(again.client_tests)) == (again.client_names, 2)
    (file,) = (folder / "train").iterdir()
    os.utime(file, (1, 1))
    load("shakespeare", tmp_path)
    assert len(reads) == 2


def damaged_by(change, parts):
    """The file of training data after a change of the first user's samples."""
    first = parts["train"]["user_data"][parts["train"]["users"][0]]
    change(first)
    return parts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda user: user["y"].pop(), "it has 6 inputs and 5 labels"),
        (lambda user: user.update(x=[], y=[]), "it has 0 inputs and 0 labels"),
        (lambda user: user.update(x="text"), "x and y must be lists"),
        (lambda user: user.pop("y"), "x or y is missing"),
        (lambda user: user["x"].__setitem__(3, "a" * 79), "is not a string of length 80"),
        (lambda user: user["x"].__setitem__(3, 7), "7 is not a string of length 80"),
        (lambda user: user["x"].__setitem__(3, "a" * 79 + "é"), r"'\\xe9' is not one of LEAF's 80 characters"),
        (lambda user: user["x"].__setitem__(3, "a" * 79 + "\ud800"), r"'\\ud800' is not one of"),
        (lambda user: user["y"].__setitem__(0, "<"), "'<' is not one of LEAF's 80 characters"),
        (lambda user: user["y"].__setitem__(0, "ab"), "'ab' is not a string of length 1"),
    ],
)
def test_wrong_text_is_named_with_file_and_user(tmp_path, change, message):
    write(tmp_path, "shakespeare", damaged_by(change, shakespeare()))
    with pytest.raises(
        UserError, match=f"all_data_0.*train_9.json is damaged: user 'HAMLET_HORATIO': .*{message}"
    ) as it:
        load("shakespeare", tmp_path)
    assert "\n" not in str(it.value)
    assert "preprocess.sh" in str(it.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda user: user["x"][1].pop(), "is not a list of 784 values"),
        (lambda user: user["x"].__setitem__(0, 0.5), "0.5 is not a list of 784 values"),
        (lambda user: user["x"][1].__setitem__(9, 1.01), r"outside \[0, 1\]"),
        (lambda user: user["x"][1].__setitem__(9, -0.01), r"outside \[0, 1\]"),
        (lambda user: user["x"][1].__setitem__(9, float("nan")), r"outside \[0, 1\]"),
        (lambda user: user["x"][1].__setitem__(9, float("inf")), r"outside \[0, 1\]"),
        (lambda user: user["x"][1].__setitem__(9, 0.5), "not a grey level divided by 255"),
        (lambda user: user["x"][1].__setitem__(9, "0.2"), "no number"),
        (lambda user: user["x"][1].__setitem__(9, None), "no number"),
        (lambda user: user["x"][1].__setitem__(9, 10**400), "no number"),
        (lambda user: user["y"].__setitem__(0, 62), "62 is not a label from 0 to 61"),
        (lambda user: user["y"].__setitem__(0, -1), "-1 is not a label"),
        (lambda user: user["y"].__setitem__(0, True), "True is not a label"),
        (lambda user: user["y"].__setitem__(0, 1.0), "1.0 is not a label"),
    ],
)
def test_wrong_images_are_named_with_file_and_user(tmp_path, change, message):
    write(tmp_path, "femnist", damaged_by(change, femnist()))
    with pytest.raises(UserError, match=f"train_9.json is damaged: user 'f0001_02': .*{message}") as it:
        load("femnist", tmp_path)
    assert "\n" not in str(it.value)


def raw(text):
    return lambda path: path.write_text(text)


def changed(**values):
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | values))


def renamed(new):
    def change(path):
        found = json.loads(path.read_text())
        users = {new if name == "LEAR_KENT" else name: own for name, own in found["user_data"].items()}
        path.write_text(json.dumps(content(users)))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_text(path.read_text()[:-30]), r"it cannot be read as JSON \(Unterminated string"),
        (lambda path: path.write_bytes(b"\xff\xfe\xfa"), "it cannot be read as JSON"),
        (raw("[" * 100_000), "it cannot be read as JSON"),
        (raw("[]"), "it needs users"),
        (raw('{"users": []}'), "it needs users"),
        (raw('{"users": [], "user_data": {}}'), "it has no users"),
        (changed(users=["LEAR_KENT"]), "users does not list the users of user_data"),
        (changed(users=[1, 2]), "users does not list"),
        (changed(users=None), "it needs users"),
        (changed(user_data={"a": 3}), "user 'a': x or y is missing"),
        (renamed(""), "a name must have 1 to 200 printable characters"),
        (renamed("a\x1b[31m"), "printable"),
        (renamed("a" * 201), "printable"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, change, message):
    folder = write(tmp_path, "shakespeare", shakespeare())
    (file,) = (folder / "test").iterdir()
    change(file)
    with pytest.raises(UserError, match=f"test_9.json is damaged: .*{message}") as it:
        load("shakespeare", tmp_path)
    assert "\n" not in str(it.value)
    assert len(str(it.value)) < 700


def test_a_user_in_two_files_is_rejected(tmp_path):
    parts = shakespeare()
    write(tmp_path, "shakespeare", parts | {"train": [parts["train"], parts["train"]]})
    with pytest.raises(UserError, match=r"all_data_1.*json is damaged: user 'HAMLET_HORATIO' is also in all_data_0"):
        load("shakespeare", tmp_path)


@pytest.mark.parametrize("name", ["shakespeare", "femnist"])
def test_missing_files_come_with_leafs_commands(tmp_path, name):
    clone = f"git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/{name}"
    commands = rf"{clone} && .*\./preprocess.sh -s niid .*-t sample"
    with pytest.raises(UserError, match=f"no folder .*{name}.*--data-dir.*{commands}"):
        load(name, tmp_path)
    with pytest.raises(UserError, match=f"{name} cannot be downloaded as it is; create it: {commands}"):
        fetch(name, tmp_path)
    (tmp_path / name / "train").mkdir(parents=True)
    with pytest.raises(
        UserError, match=f"{name}: .* is incomplete, test is missing: move .* away and create it again: {commands}"
    ):
        load(name, tmp_path)
    (tmp_path / name / "test").mkdir()
    with pytest.raises(UserError, match=r"train has no \.json files"):
        load(name, tmp_path)


def test_a_file_that_does_not_fit_into_memory_is_rejected_before_it_is_read(tmp_path, monkeypatch):
    write(tmp_path, "femnist", femnist())
    monkeypatch.setattr("fedmim.memory.available_memory", lambda: 1000)
    with pytest.raises(UserError, match=r"^data: .*\.json needs about .* --sf of preprocess\.sh"):
        load("femnist", tmp_path)
