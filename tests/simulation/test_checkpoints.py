"""Checkpoints: whole or not at all, named when broken, and true to the run after a kill at any instant."""

from __future__ import annotations

import json
import shutil
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from problems import busy, classification
from safetensors.torch import save_file

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.checkpoint import CHECKPOINT_FILE, PREVIOUS_FILE, Checkpoint, has_checkpoint


def begin(folder, algorithm=None, resume=False, **overrides):
    protocol = busy(**{"participation": 0.43, "engine": "serial"} | overrides)
    return fedmim.rounds(algorithm or fedmim.Scaffold(), classification(), *protocol, folder=folder, resume=resume)


@pytest.fixture
def saved(tmp_path):
    """A folder with the checkpoint of two rounds of SCAFFOLD."""
    run = begin(tmp_path)
    next(run), next(run)
    run.save()
    return tmp_path


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_torn_checkpoint_is_named(saved, part):
    path = saved / CHECKPOINT_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(UserError, match=CHECKPOINT_FILE):
        begin(saved, resume=True)


def foreign(path, **facts):
    save_file({"params": torch.zeros(3)}, path, facts or None)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b"\xff" * 200),
        lambda path: path.write_text("not a checkpoint"),
        lambda path: foreign(path),
        lambda path: foreign(path, fedmim="{"),
        lambda path: foreign(path, fedmim="[]"),
        lambda path: foreign(path, fedmim=json.dumps({"method": "x", "round": 1})),
    ],
    ids=["noise", "text", "another file", "broken facts", "other facts", "facts missing"],
)
def test_a_file_that_is_no_checkpoint_is_named(saved, write):
    write(saved / CHECKPOINT_FILE)
    with pytest.raises(UserError, match=CHECKPOINT_FILE):
        begin(saved, resume=True)


def test_no_checkpoint_to_resume_from_is_named(tmp_path):
    with pytest.raises(UserError, match=f"{CHECKPOINT_FILE}: there is no checkpoint to resume from"):
        begin(tmp_path, resume=True)


def test_a_torn_or_missing_client_state_is_named(saved):
    path = sorted((saved / "clients").iterdir())[0]
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], None):
        path.unlink()
        if broken is not None:
            path.write_bytes(broken)
        with pytest.raises(UserError, match=path.name):
            begin(saved, resume=True)


@pytest.mark.parametrize(("name", "value"), [("lr", 0.7), ("seed", 9), ("participation", 1.0)])
def test_a_run_does_not_go_on_with_another_setting_that_its_bits_depend_on(saved, name, value):
    with pytest.raises(UserError, match=f"the run there has a different {name}"):
        begin(saved, resume=True, **{name: value})
    assert begin(saved, resume=True, rounds=50, eval_every=7).server.state.round == 2


def test_a_run_may_go_on_with_another_engine_to_float_tolerance(saved):
    expected, resumed = begin(None), begin(saved, resume=True, engine="vectorised")
    records, later = list(expected), list(resumed)
    assert (expected.engine, resumed.engine) == ("serial", "vectorised")
    torch.testing.assert_close(resumed.params, expected.params, rtol=1e-12, atol=1e-12)
    assert [record.clients for record in later] == [record.clients for record in records[2:]]


def test_an_older_checkpoint_whose_settings_name_the_engine_can_be_resumed(saved):
    checkpoint = Checkpoint.load(saved / CHECKPOINT_FILE)
    replace(checkpoint, settings=checkpoint.settings | {"engine": "processes"}).save(saved)
    expected, resumed = begin(None), begin(saved, resume=True)
    list(expected), list(resumed)
    assert torch.equal(resumed.params, expected.params)


def test_an_older_checkpoint_without_newer_settings_has_their_defaults(saved):
    checkpoint = Checkpoint.load(saved / CHECKPOINT_FILE)
    newer = ("dropout", "availability", "late", "rounds_per_day", "work", "lr_schedule")
    older = {name: value for name, value in checkpoint.settings.items() if name not in newer}
    replace(checkpoint, settings=older).save(saved)
    expected, resumed = begin(None), begin(saved, resume=True)
    list(expected), list(resumed)
    assert torch.equal(resumed.params, expected.params)
    with pytest.raises(UserError, match="the run there has a different dropout"):
        begin(saved, resume=True, dropout=0.5)


def test_an_older_checkpoint_whose_method_names_the_history_can_be_resumed(tmp_path):
    """It was a hyper-parameter of FedMIM: FedMIM(alpha=..., beta=..., history='catch-up')."""
    run = begin(tmp_path, fedmim.FedMIM(), history="catch-up")
    next(run), next(run)
    run.save()
    checkpoint = Checkpoint.load(tmp_path / CHECKPOINT_FILE)
    settings = {name: value for name, value in checkpoint.settings.items() if name != "history"} | {"engine": "auto"}
    method = checkpoint.method.removesuffix(")") + ", history='catch-up')"
    replace(checkpoint, method=method, settings=settings).save(tmp_path)
    resumed = begin(tmp_path, fedmim.FedMIM(), resume=True, history="catch-up")
    expected = list(begin(None, fedmim.FedMIM(), history="catch-up"))[2:]
    assert [record.bytes_down for record in resumed] == [record.bytes_down for record in expected]
    with pytest.raises(UserError, match="the run there has a different history"):
        begin(tmp_path, fedmim.FedMIM(), resume=True)


@pytest.mark.parametrize("algorithm", [fedmim.FedAvg(), fedmim.FedDyn()])
def test_another_methods_checkpoint_is_rejected(saved, algorithm):
    with pytest.raises(UserError, match=str(saved)):
        begin(saved, algorithm, resume=True)


def test_the_same_method_with_other_weights_is_another_run(tmp_path):
    run = begin(tmp_path, fedmim.FedMIM((0.5,), (0.1,)))
    run.save()
    with pytest.raises(UserError, match=str(tmp_path)):
        begin(tmp_path, fedmim.FedMIM((0.6,), (0.1,)), resume=True)


def test_another_models_checkpoint_is_rejected(saved):
    task = classification(model=torch.nn.Linear(4, 3).double())
    with pytest.raises(UserError, match=str(saved)):
        fedmim.rounds(fedmim.Scaffold(), task, fedmim.Settings(), folder=saved, resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_saving_and_resuming_need_a_folder(resume):
    with pytest.raises(UserError, match=r"^folder: "):
        begin(None, resume=resume).save()


def test_only_safetensors_are_written_one_for_each_client_that_took_part(saved):
    took_part = {client for record in list(begin(None))[:2] for client in record.clients}
    files = [path for path in saved.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors"}
    assert len(files) == 1 + len(took_part)


@pytest.mark.parametrize(("refused", "left"), [(PREVIOUS_FILE, CHECKPOINT_FILE), (CHECKPOINT_FILE, PREVIOUS_FILE)])
def test_a_save_that_fails_leaves_the_older_checkpoint(saved, monkeypatch, refused, left):
    rename = Path.replace

    def full_disk(path, target):
        if Path(target).name == refused:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    older = (saved / CHECKPOINT_FILE).read_bytes()
    run = begin(saved, resume=True)
    next(run)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full_disk)
        with pytest.raises(OSError, match=f"No space left on device; free some space.*{CHECKPOINT_FILE}"):
            run.save()
    assert (saved / left).read_bytes() == older
    expected = begin(None)
    list(expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the newest is missing, where it is
        resumed = begin(saved, resume=True)
    list(resumed)
    assert torch.equal(resumed.params, expected.params)
    list(run)  # the run itself goes on as well
    run.save()
    assert torch.equal(run.params, expected.params)
    assert not [path for path in saved.rglob("*") if path.suffix == ".part"]


@pytest.mark.parametrize("budget", [None, 1], ids=["in memory", "spilled"])
def test_a_kill_at_any_instant_loses_no_more_than_the_rounds_since_the_checkpoint(tmp_path, monkeypatch, budget):
    """The folder is copied before and after every file that appears or goes; each copy is what a kill then leaves."""
    run, copies = begin(tmp_path / "run", rounds=4), []
    run.server.clients.budget = budget or run.server.clients.budget

    def copying(operation):
        def operate(path, *arguments, **options):
            if tmp_path / "run" in path.parents:
                copies.append(shutil.copytree(tmp_path / "run", tmp_path / str(len(copies))))
            return operation(path, *arguments, **options)

        return operate

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", copying(Path.replace))
        patch.setattr(Path, "unlink", copying(Path.unlink))
        for _ in run:
            run.save()
    expected, states = run.params, [run.server.clients.get(client)["control"] for client in range(7)]
    resumable = [copy for copy in copies if has_checkpoint(copy)]
    assert len(resumable) > 20
    for copy in resumable:
        between = not (copy / CHECKPOINT_FILE).exists()  # the two renames of a save
        with pytest.warns(UserWarning, match="is missing; resuming from") if between else nullcontext():
            resumed = begin(copy, resume=True, rounds=4)
        list(resumed)
        assert torch.equal(resumed.params, expected)
        assert all(torch.equal(resumed.server.clients.get(i)["control"], state) for i, state in enumerate(states))


def test_states_of_rounds_after_the_checkpoint_are_removed_with_the_next_save(saved):
    before = sorted((saved / "clients").iterdir())
    run = begin(saved, resume=True)
    run.server.clients.budget = 1
    next(run)  # its client states reach the disk, its checkpoint does not
    assert len(sorted((saved / "clients").iterdir())) > len(before)
    resumed = begin(saved, resume=True)
    assert len(sorted((saved / "clients").iterdir())) > len(before)  # resuming writes and removes nothing
    resumed.save()
    assert sorted((saved / "clients").iterdir()) == before


def test_a_method_may_keep_one_tensor_under_two_names(tmp_path):
    """As a method does that keeps past models: at first they are all the same vector."""

    class Anchored(fedmim.FedAvg):
        def init(self, params):
            return fedmim.ServerState(params, {"previous": params})

        def update(self, state, mean, round):
            after = super().update(state, mean, round)
            return fedmim.ServerState(after.params, {"previous": state.params})

    run = begin(tmp_path, Anchored())
    run.save()
    next(run)
    run.save()
    resumed = begin(tmp_path, Anchored(), resume=True)
    assert torch.equal(resumed.state.slots["previous"], run.state.slots["previous"])
    assert torch.equal(resumed.params, run.params)
