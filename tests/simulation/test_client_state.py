"""Client state: held for clients that have any, in memory up to a budget and in files beyond it."""

from __future__ import annotations

import gc

import pytest
import torch

from fedmim.simulation.client_state import ClientState

D = 10
ZEROS = {"slot": torch.zeros(D)}
BYTES = 4 * D


def vectors(value):
    return {"slot": torch.full((D,), float(value))}


def value(state, client):
    return state.get(client)["slot"][0].item()


def files(folder):
    return sorted(path.name for path in folder.glob("*")) if folder.exists() else []


def test_a_client_that_never_took_part_has_zeros(tmp_path):
    state = ClientState(ZEROS, tmp_path)
    assert torch.equal(state.get(3)["slot"], torch.zeros(D))
    state.commit()
    assert state.places == {}


def test_what_was_put_counts_from_the_commit_on(tmp_path):
    state = ClientState(ZEROS, tmp_path)
    state.put(3, 0, vectors(1))
    assert value(state, 3) == 0
    state.commit()
    assert value(state, 3) == 1
    state.put(3, 1, vectors(2))
    assert value(state, 3) == 1
    state.rollback()
    state.commit()
    assert value(state, 3) == 1
    assert state.places == {3: 0}


def test_it_keeps_a_copy_of_its_own(tmp_path):
    state, given = ClientState(ZEROS, tmp_path), vectors(1)
    state.put(3, 0, given)
    state.commit()
    given["slot"].fill_(9)
    assert value(state, 3) == 1


@pytest.mark.parametrize("budget", [1, BYTES, 2 * BYTES, 5 * BYTES, 100 * BYTES])
def test_the_budget_decides_where_and_never_what(tmp_path, budget):
    state, expected = ClientState(ZEROS, tmp_path, budget=budget), {}
    for round in range(6):
        clients = [(7 * round + k) % 11 for k in range(4)]
        for client in clients:
            state.put(client, round, vectors(100 * round + client))
        if round == 3:
            state.rollback()
            continue
        state.commit()
        expected |= {client: 100 * round + client for client in clients}
        assert {client: value(state, client) for client in expected} == expected
    held = len(expected) - min(len(expected), budget // BYTES)
    assert len(files(tmp_path)) >= held


def test_within_its_budget_nothing_is_written(tmp_path):
    state = ClientState(ZEROS, tmp_path)
    for client in range(5):
        state.put(client, 0, vectors(client))
    state.commit()
    assert files(tmp_path) == []


def test_flush_writes_what_a_checkpoint_names_and_sweep_removes_the_rest(tmp_path):
    state = ClientState(ZEROS, tmp_path)
    for round in range(3):
        for client in (0, 1):
            state.put(client, round, vectors(10 * round + client))
        state.commit()
        state.flush()
    assert len(files(tmp_path)) == 6  # the older ones may still be named by the last checkpoint
    state.sweep(set(state.places.items()) | {(0, 1)})
    assert files(tmp_path) == [f"{name}.safetensors" for name in ("0000000-000001", "0000000-000002", "0000001-000002")]
    loaded = ClientState(ZEROS, tmp_path, state.places)
    assert (value(loaded, 0), value(loaded, 1)) == (20, 21)


def test_a_rollback_removes_the_files_of_its_round_alone(tmp_path):
    state = ClientState(ZEROS, tmp_path, budget=1)
    state.put(0, 0, vectors(1))
    state.commit()
    before = files(tmp_path)
    state.put(0, 1, vectors(2))
    state.put(1, 1, vectors(3))
    state.rollback()
    assert files(tmp_path) == before
    assert (value(state, 0), value(state, 1)) == (1, 0)


def test_without_a_folder_it_spills_to_a_temporary_one_that_goes_with_it():
    state = ClientState(ZEROS, budget=1)
    for round in range(3):
        for client in range(3):
            state.put(client, round, vectors(10 * round + client))
        state.commit()
    folder = state.folder
    assert len(files(folder)) == 3  # those of earlier rounds are gone
    assert [value(state, client) for client in range(3)] == [20, 21, 22]
    del state
    gc.collect()
    assert not folder.exists()
