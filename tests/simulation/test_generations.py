"""Two generations of checkpoints: a damaged newest one falls back to the one before, to the same bits."""

from __future__ import annotations

import os
import re
from itertools import groupby
from pathlib import Path

import pytest
import torch
from problems import busy, classification

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.checkpoint import CHECKPOINT_FILE, PREVIOUS_FILE, Checkpoint

ROUNDS = 6


def begin(folder, resume=False):
    protocol = busy(participation=0.43, engine="serial", rounds=ROUNDS)
    return fedmim.rounds(fedmim.Scaffold(), classification(), *protocol, folder=folder, resume=resume)


@pytest.fixture
def saved(tmp_path):
    """A folder with the checkpoints after rounds 2 and 3."""
    run = begin(tmp_path)
    for _ in range(3):
        next(run)
        run.save()
    return tmp_path


@pytest.fixture(scope="module")
def expected():
    run = begin(None)
    list(run)
    return run


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tear(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    whole = bytearray(path.read_bytes())
    whole[-5] ^= 1
    path.write_bytes(whole)


def newest_state(folder):
    """The file of a client that the newest checkpoint names and the one before does not."""
    newest, older = (Checkpoint.load(folder / name).client_rounds for name in (CHECKPOINT_FILE, PREVIOUS_FILE))
    client, round = next(place for place in newest.items() if place not in older.items())
    return folder / "clients" / f"{client:07d}-{round:06d}.safetensors"


@pytest.mark.parametrize("damage", [tear, flip, lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("what", ["checkpoint", "client"])
def test_damage_to_the_newest_falls_back_to_the_one_before_and_to_the_same_bits(saved, expected, damage, what):
    path = saved / CHECKPOINT_FILE if what == "checkpoint" else newest_state(saved)
    damage(path)
    before = content(saved)
    with pytest.warns(UserWarning, match=re.escape(str(path)) + ".*resuming from the previous checkpoint") as told:
        run = begin(saved, resume=True)
    assert len(told) == 1
    assert run.state.round == 2
    assert content(saved) == before  # nothing is written before a round has ended
    for _ in run:
        run.save()
    assert torch.equal(run.params, expected.params)
    states = [(each.server.clients.get(i)["control"] for i in range(7)) for each in (run, expected)]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*states, strict=True))
    assert begin(saved, resume=True).state.round == ROUNDS  # and the newest is whole again, without a warning


def test_after_a_fallback_the_older_checkpoint_stays_until_there_are_two_whole_ones(saved, expected):
    flip(saved / CHECKPOINT_FILE)
    with pytest.warns(UserWarning, match="after round 2"):
        run = begin(saved, resume=True)
    next(run), run.save()
    assert [Checkpoint.load(saved / name).server.round for name in (CHECKPOINT_FILE, PREVIOUS_FILE)] == [3, 2]
    flip(saved / CHECKPOINT_FILE)
    with pytest.warns(UserWarning, match="after round 2"):
        run = begin(saved, resume=True)
    list(run)
    assert torch.equal(run.params, expected.params)


def test_both_damaged_is_one_line_that_names_both_and_the_remedy(saved):
    flip(saved / CHECKPOINT_FILE)
    tear(saved / PREVIOUS_FILE)
    before = content(saved)
    names = f"{re.escape(CHECKPOINT_FILE)}: .*{re.escape(PREVIOUS_FILE)}: "
    with pytest.raises(UserError, match=f"{names}.*restore one, or remove both to start again") as told:
        begin(saved, resume=True)
    assert "\n" not in str(told.value)
    assert content(saved) == before


def test_the_files_of_clients_are_those_that_the_two_checkpoints_name(saved):
    run = begin(saved, resume=True)
    for _ in run:
        run.save()
        named = {
            f"{client:07d}-{round:06d}.safetensors"
            for name in (CHECKPOINT_FILE, PREVIOUS_FILE)
            for client, round in Checkpoint.load(saved / name).client_rounds.items()
        }
        assert {path.name for path in (saved / "clients").iterdir()} == named


def test_saving_twice_after_one_round_keeps_the_checkpoint_before(saved):
    before = content(saved)
    run = begin(saved, resume=True)
    run.save()
    assert content(saved) == before


def test_another_runs_checkpoint_is_no_damage_and_nothing_falls_back(saved):
    protocol = busy(participation=0.43, engine="serial", rounds=ROUNDS, lr=0.7)
    with pytest.raises(UserError, match="the run there has a different lr"):
        fedmim.rounds(fedmim.Scaffold(), classification(), *protocol, folder=saved, resume=True)


def test_new_names_reach_the_disk_before_a_checkpoint_uses_them_and_before_old_files_go(saved, monkeypatch):
    """What a power failure leaves is any prefix of this order, and each can be resumed from."""
    run, events = begin(saved, resume=True), []
    next(run)
    rename, unlink, sync = Path.replace, Path.unlink, os.fsync

    def replace(path, target):
        events.append(f"name {target.name if target.parent == saved else 'state'}")
        return rename(path, target)

    def remove(path, **options):
        if path.exists():
            events.append("remove state")
        unlink(path, **options)

    def fsync(handle):
        place = Path(f"/proc/self/fd/{handle}").readlink()
        if place.is_dir():
            events.append(f"sync {place.name if place != saved else 'run'}")
        sync(handle)

    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "unlink", remove)
    monkeypatch.setattr(os, "fsync", fsync)
    run.save()
    assert [event for event, _ in groupby(events)] == [
        "name state",
        "sync clients",
        "sync run",
        f"name {PREVIOUS_FILE}",
        f"name {CHECKPOINT_FILE}",
        "sync run",
        "remove state",
    ]
