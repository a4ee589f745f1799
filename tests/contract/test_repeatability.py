"""Contract: a run is a function of its settings. Resumed, interrupted or repeated, it has the same bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from every_method import EVERY_METHOD, WITH_REFERENCES
from problems import busy, classification

import fedmim

ROUNDS = 6
REFERENCES = WITH_REFERENCES.keys() - EVERY_METHOD.keys()
WITH_CLIENT_STATE = [name for name, method in WITH_REFERENCES.items() if method.client_slots]
# Every method by the serial engine; by the vectorised one those that differ in what the server and the clients keep.
METHODS_AND_ENGINES = [(name, "serial") for name in WITH_REFERENCES]
METHODS_AND_ENGINES += [(name, "vectorised") for name in ("fedavg", "fedadam", "fedmim", *WITH_CLIENT_STATE)]


def protocol(**overrides):
    return busy(**{"rounds": ROUNDS, "participation": 0.43} | overrides)  # 3 of 7


def timeless(records):
    return [replace(record, seconds=0.0) for record in records]


def bits(run):
    """All that a run carries: the server's state, the buffers, every client's state."""
    server = run.server
    vectors = {"params": run.params, "buffers": server.buffers}
    vectors |= {f"slot {k}": v for k, v in server.state.slots.items()}
    for client in range(len(run.task.clients)):
        vectors |= {f"client {client} {k}": v for k, v in server.clients.get(client).items()}
    return server.state.round, vectors


def assert_same_bits(one, other):
    (round, vectors), (other_round, other_vectors) = one, other
    assert round == other_round
    assert vectors.keys() == other_vectors.keys()
    for name, vector in vectors.items():
        assert torch.equal(vector, other_vectors[name]), name


@pytest.mark.parametrize(("name", "engine"), METHODS_AND_ENGINES)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(name, engine):
    runs = [fedmim.rounds(WITH_REFERENCES[name], classification(), *protocol(seed=s, engine=engine)) for s in (3, 3, 4)]
    torch.manual_seed(1)
    first = timeless(runs[0])
    torch.manual_seed(2)  # the global generator has no say
    second, third = timeless(runs[1]), timeless(runs[2])
    assert first == second
    assert_same_bits(bits(runs[0]), bits(runs[1]))
    if name not in REFERENCES:  # the pool has one client, and who trains alone has no global model
        assert [record.clients for record in third] != [record.clients for record in first]
        assert (runs[2].params - runs[0].params).abs().max() > 1e-4
    assert [record.train_loss for record in third] != [record.train_loss for record in first]


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_another_seed_gives_other_minibatches_where_all_clients_take_part(name):
    one, other = (
        fedmim.simulate(EVERY_METHOD[name], classification(), *protocol(participation=1.0, rounds=2, seed=seed))
        for seed in (0, 1)
    )
    assert (one.params - other.params).abs().max() > 1e-4


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_state_survives_saving_and_loading_in_float32(name, tmp_path):
    """In float64 the next test shows it."""
    task = classification(dtype=torch.float32)
    run = fedmim.rounds(WITH_REFERENCES[name], task, *protocol(), folder=tmp_path)
    for _ in range(3):
        next(run)
    run.save()
    loaded = fedmim.rounds(WITH_REFERENCES[name], task, *protocol(), folder=tmp_path, resume=True)
    assert_same_bits(bits(run), bits(loaded))
    assert loaded.params.dtype == torch.float32


def assert_resumed_equals_uninterrupted(algorithm, engine, folder, budget=None):
    """Resumed at every second round, each time after a further round that is lost, as by a kill."""
    task = classification()
    whole = fedmim.rounds(algorithm, task, *protocol(engine=engine))
    expected = timeless(whole)

    def begin(resume):
        run = fedmim.rounds(algorithm, task, *protocol(engine=engine), folder=folder, resume=resume)
        run.server.clients.budget = budget or run.server.clients.budget
        return run

    run, records = begin(resume=False), []
    for stop in (1, 3, 5):
        while run.state.round < stop:
            records.append(next(run))
        run.save()
        next(run)
        run = begin(resume=True)
        assert run.state.round == stop
    records += list(run)
    assert timeless(records) == expected
    assert_same_bits(bits(run), bits(whole))


@pytest.mark.parametrize(("name", "engine"), METHODS_AND_ENGINES)
def test_resumed_equals_uninterrupted_bit_for_bit(name, engine, tmp_path):
    assert_resumed_equals_uninterrupted(WITH_REFERENCES[name], engine, tmp_path)


@pytest.mark.parametrize("name", WITH_CLIENT_STATE)
def test_resumed_equals_uninterrupted_where_client_state_spills_to_files(name, tmp_path):
    assert_resumed_equals_uninterrupted(WITH_REFERENCES[name], "serial", tmp_path, budget=1)
    assert any((tmp_path / "clients").iterdir())


class Fuse:
    """A loss that raises once, at the given call."""

    def __init__(self, error):
        self.error, self.calls_left = error, None

    def __call__(self, outputs, targets):
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left == 0:
                self.calls_left = None
                raise self.error
        return F.cross_entropy(outputs, targets)


def assert_interruption_changes_nothing(algorithm, engine, error, folder):
    whole = fedmim.rounds(algorithm, classification(), *protocol(engine=engine))
    expected = timeless(whole)
    fuse = Fuse(error)
    run = fedmim.rounds(algorithm, classification(loss=fuse), *protocol(engine=engine), folder=folder)
    run.server.clients.budget = 1
    records = []
    for t in range(ROUNDS):
        if t in (0, 2, 3):
            before, files = bits(run), sorted(folder.rglob("*"))
            fuse.calls_left = 5  # serial: in the second or third client
            with pytest.raises(type(error)):
                next(run)
            assert_same_bits(bits(run), before)
            assert [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in files] == []
        records.append(next(run))
    assert timeless(records) == expected
    assert_same_bits(bits(run), bits(whole))


@pytest.mark.parametrize(("name", "engine"), METHODS_AND_ENGINES)
def test_a_round_in_which_a_client_failed_has_changed_nothing(name, engine, tmp_path):
    assert_interruption_changes_nothing(WITH_REFERENCES[name], engine, RuntimeError("pulled the plug"), tmp_path)


@pytest.mark.parametrize("name", ["fedmim", "scaffold"])
def test_a_round_that_the_user_stopped_has_changed_nothing(name, tmp_path):
    assert_interruption_changes_nothing(WITH_REFERENCES[name], "serial", KeyboardInterrupt(), tmp_path)


@pytest.mark.parametrize("name", ["fedmim", "scaffold"])
def test_the_rounds_of_a_shorter_run_are_those_of_a_longer_one(name):
    short, long = (fedmim.rounds(WITH_REFERENCES[name], classification(), *protocol(rounds=n)) for n in (2, ROUNDS))
    list(short)
    next(long), next(long)
    assert_same_bits(bits(short), bits(long))
