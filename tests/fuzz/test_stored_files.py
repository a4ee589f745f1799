"""Damaged files of a run, a comparison or a search: read to the same values, or rejected by an error that names them.

Files with a checksum are never read to other values. The others may be, where the damage makes another valid file.
"""

import contextlib
import json
import shutil

import pytest
import torch
from fuzzing import bounded_memory, damaged, fuzzed
from hypothesis import example, given
from hypothesis import strategies as st
from run_folders import comparison

from fedmim.algorithms import ServerState
from fedmim.errors import UserError
from fedmim.experiments.archive import KEPT, Archive
from fedmim.experiments.client_labels import read_client_labels
from fedmim.experiments.comparison import Comparison
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.search import Range, Search
from fedmim.experiments.search_journal import open_study
from fedmim.experiments.search_results import write_trials
from fedmim.experiments.tune import Tuner
from fedmim.files import read_metadata, read_tensors, write_tensors
from fedmim.report.page import page
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results
from fedmim.simulation.checkpoint import CHECKPOINT_FILE, Checkpoint
from fedmim.simulation.client_state import ClientState

VECTOR = torch.arange(5.0)
CHECKPOINT = Checkpoint(
    "FedAvg()", {"seed": 0, "history": "server"}, ServerState(VECTOR, {"m": VECTOR}, 3), VECTOR, {1: 2}, {}, {}
)
RUN = Run.make("fedmim", defaults("digits") | {"rounds": 3})
SEARCH = Search(RUN.replace(validation=0.2), {"lr": Range(0.01, 1.0, log=True)}, trials=2)
TRIALS = [
    {"trial": n, "state": s, "rounds": 3, "accuracy": a, "lr": 0.1}
    for n, s, a in [(1, "complete", 0.5), (2, "pruned", None)]
]


@contextlib.contextmanager
def a_copy(whole, folder):
    """A fresh copy of a folder, to be damaged."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    yield folder


def allowing(*kinds):
    """Only these errors may come, and no large allocation."""
    stack = contextlib.ExitStack()
    stack.enter_context(bounded_memory())
    stack.enter_context(contextlib.suppress(*kinds))
    return stack


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folders with one of each file."""
    folder = tmp_path_factory.mktemp("whole")
    write_tensors(folder / "t.safetensors", {"a": VECTOR, "b": VECTOR.double()}, {"round": "3"})
    CHECKPOINT.save(folder)
    state = ClientState({"slot": torch.zeros(5)}, folder / "clients")
    state.put(1, 2, {"slot": VECTOR})
    state.commit(), state.flush()
    comparison(folder / "comparison", [("fedavg", "FedAvg", {}), ("fedmim", "own", {})], seeds=(0, 1), rounds=3)
    (folder / "search").mkdir()
    write_trials(folder / "search" / "trials.csv", TRIALS)
    records = [dict.fromkeys(KEPT, 1) | {"round": number} for number in (1, 2, 3)]
    Archive(folder / "archive").add(RUN, records)
    rows = [",".join(KEPT), *(",".join("1" for _ in KEPT) for _ in range(3))]
    head = [f"# {line}".rstrip() for line in ["# fedmim 0.1.0", *RUN.to_toml().splitlines()]]
    (folder / "csv").mkdir()
    (folder / "csv" / "old.csv").write_text("\n".join(head + rows) + "\n")
    return folder


def damage(data, path):
    path.write_bytes(data.draw(damaged(path.read_bytes())))


@fuzzed(200)
@given(data=st.data())
@example(data=(b"fedmim", b"gedmim"))
@example(data=(b"checksum", b"dhecksum"))
@example(data=(b"checksum", b"method: "))
def test_tensors_with_a_checksum_are_read_as_they_were_or_rejected(whole, tmp_path, data):
    path = tmp_path / "t.safetensors"
    shutil.copy(whole / "t.safetensors", path)
    if isinstance(data, tuple):
        path.write_bytes(path.read_bytes().replace(*data))
    else:
        damage(data, path)
    with allowing(ValueError):
        tensors, metadata = read_tensors(path)
        assert equal(tensors, {"a": VECTOR, "b": VECTOR.double()})
        assert metadata == {"round": "3"}
    with allowing(ValueError):
        read_metadata(path)


@fuzzed(100)
@given(data=st.data())
def test_a_checkpoint_is_read_as_it_was_or_rejected(whole, tmp_path, data):
    shutil.copy(whole / CHECKPOINT_FILE, tmp_path)
    damage(data, tmp_path / CHECKPOINT_FILE)
    with allowing(UserError):
        found = Checkpoint.load(tmp_path / CHECKPOINT_FILE)
        assert torch.equal(found.server.params, VECTOR)
        assert (found.method, found.settings, found.server.round) == ("FedAvg()", CHECKPOINT.settings, 3)
        assert (found.client_rounds, found.heard) == ({1: 2}, {})


@fuzzed(100)
@given(data=st.data())
def test_a_clients_state_is_read_as_it_was_or_rejected(whole, tmp_path, data):
    with a_copy(whole / "clients", tmp_path / "clients") as folder:
        damage(data, next(folder.iterdir()))
        with allowing(UserError):
            assert torch.equal(ClientState({"slot": torch.zeros(5)}, folder, {1: 2}).get(1)["slot"], VECTOR)


@fuzzed(100)
@given(data=st.data())
def test_a_damaged_comparison_or_configuration_is_read_or_rejected(whole, tmp_path, data):
    with a_copy(whole / "comparison", tmp_path / "comparison") as folder:
        damage(data, folder / "comparison.toml")
        damage(data, folder / "fedavg-seed0" / "config.toml")
        with allowing(UserError):
            list(Comparison.open(folder).jobs())
        with allowing(UserError):
            found = RunFolder.open(folder / "fedavg-seed0").run
            assert (
                Run.from_toml(dict(json.loads(json.dumps(plain_toml(found)))), "again").identity() == found.identity()
            )


def plain_toml(run):
    return {"method": run.method, "label": run.label, **run.config.plain(), run.method: run.hyper_parameters()}


@fuzzed(100)
@given(data=st.data())
@example(data=None)
def test_damaged_counts_of_classes_are_counts_or_rejected(whole, tmp_path, data):
    with a_copy(whole / "comparison", tmp_path / "comparison") as folder:
        path = folder / "fedavg-seed0" / "clients.json"
        if data:
            damage(data, path)
        with bounded_memory():
            try:
                counts = read_client_labels(path.parent)
            except UserError:  # it names the file, as the next test shows
                assert data
                return
        assert counts.min() >= 0
        assert data or counts.tolist() == [[4, 0, 0], [0, 3, 1], [1, 1, 2]]


@fuzzed(40, slow=4)
@given(data=st.data())
def test_damaged_records_are_records_or_left_out_and_named(whole, tmp_path, data):
    """metrics.jsonl through the reader, and through the page of the comparison, which shows the other runs."""
    with a_copy(whole / "comparison", tmp_path / "comparison") as folder:
        path = folder / "fedavg-seed0" / "metrics.jsonl"
        damage(data, path)
        warnings = []
        with bounded_memory():
            try:
                found = RunFolder.open(path.parent).metrics()
            except UserError as error:
                found, reason = None, str(error)
            text = page(group_runs(load_results(find_runs([folder], warnings.append), warnings.append)), warnings)
        if found is None:
            assert reason.startswith(f"{path}: line ")
            assert any(str(path) in warning for warning in warnings)
        else:
            assert [record["round"] for record in found] == list(range(1, len(found) + 1))
            assert all(record["test_accuracy"] is None or -1e309 < record["test_accuracy"] < 1e309 for record in found)
        assert "FedAvg" in text


@pytest.mark.parametrize(
    "text",
    [
        '{"classes": 1000000000, "clients": [{}]}',
        '{"classes": 3, "clients": [{"0": "4"}]}',
        '{"classes": 3, "clients": [{"0": -4}]}',
        '{"classes": 3, "clients": [{"0": 1e99}]}',
        '{"classes": "3", "clients": [{"0": 1}]}',
        '{"classes": 3, "clients": 3}',
        '{"classes": 3, "clients": []}',
        '{"classes": true, "clients": [{}]}',
        "[" * 100_000,
        "9" * 5000,
    ],
)
def test_counts_that_are_none_are_rejected(tmp_path, text):
    (tmp_path / "clients.json").write_text(text)
    with bounded_memory(64 << 20), pytest.raises(UserError, match=r"clients\.json: is damaged"):
        read_client_labels(tmp_path)


@fuzzed(100)
@given(data=st.data())
def test_a_damaged_list_of_trials_is_read_or_rejected(whole, tmp_path, data):
    with a_copy(whole / "search", tmp_path / "search") as folder:
        damage(data, folder / "trials.csv")
        with allowing(UserError):
            found = Tuner(SEARCH, folder).found()
            assert found is None or isinstance(found.accuracy, int | float)


@fuzzed(60)
@given(data=st.data())
def test_a_damaged_archive_is_read_or_rejected(whole, tmp_path, data):
    with a_copy(whole / "archive", tmp_path / "archive") as folder:
        damage(data, folder / RUN.name() / "config.toml")
        with allowing(UserError):
            assert len(Archive(folder).records(RUN) or []) == 3


@fuzzed(60)
@given(data=st.data())
def test_an_archive_of_an_earlier_version_is_converted_whole_or_left_alone(whole, tmp_path, data):
    with a_copy(whole / "csv", tmp_path / "csv") as folder:
        damage(data, folder / "old.csv")
        with allowing(UserError):
            Archive(folder).convert()
        left = sorted(path.name for path in folder.iterdir())
        assert left in (["old"], ["old.csv"])
        if left == ["old"]:
            RunFolder.open(folder / "old")


@fuzzed(30, slow=4)
@given(data=st.data())
def test_a_damaged_journal_is_read_or_rejected(whole, tmp_path, data):
    with a_copy(whole / "search", tmp_path / "search") as folder:
        study = open_study(SEARCH, folder)
        study.tell(study.ask(), 0.5)
        damage(data, folder / "journal.log")
        with allowing(UserError):
            open_study(SEARCH, folder).get_trials()
