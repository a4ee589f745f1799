"""Uploads that are not finite are rejected and counted; the round goes on with the rest, or changes nothing."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from every_method import EVERY_METHOD
from problems import busy, classification, samples
from torch import nn

import fedmim

ENGINES = ["serial", "vectorised"]


def protocol(**overrides):
    return busy(**{"participation": 1.0, "rounds": 3} | overrides)


def poisoned(sizes, *clients, value=torch.nan, **options):
    task = classification(sizes, **options)
    for client in clients:
        task.clients[client][0][0, 0] = value
    return task


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_rest_is_averaged_as_if_the_rejected_client_were_not_there(engine, value):
    """The last client is the bad one, so that the others have the same ids and minibatches without it."""
    for algorithm in (fedmim.FedAvg(), fedmim.FedMIM(), fedmim.FedAdam()):
        bad = fedmim.simulate(algorithm, poisoned((5, 9, 4, 7), 3, value=value), *protocol(engine=engine))
        good = fedmim.simulate(algorithm, classification((5, 9, 4)), *protocol(engine=engine))
        torch.testing.assert_close(bad.params, good.params, rtol=1e-12, atol=1e-13)
        for record, expected in zip(bad.history, good.history, strict=True):
            assert record.refused == 1
            assert record.clients == (0, 1, 2, 3)
            assert record.train_loss == pytest.approx(expected.train_loss, rel=1e-12)
            assert record.consistency == pytest.approx(expected.consistency, rel=1e-10)
        assert all(record.refused == 0 for record in good.history)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["scaffold", "feddyn", "own: state on both sides"])
def test_a_rejected_client_keeps_its_old_state(name, engine):
    task = classification((5, 9, 4, 7))
    run = fedmim.rounds(EVERY_METHOD[name], task, *protocol(engine=engine))
    next(run)
    old = {key: vector.clone() for key, vector in run.server.clients.get(2).items()}
    other = {key: vector.clone() for key, vector in run.server.clients.get(1).items()}
    assert all(vector.any() for vector in old.values())
    task.clients[2] = (torch.full_like(task.clients[2][0], torch.nan), task.clients[2][1])
    assert next(run).refused == 1
    assert all(torch.equal(vector, run.server.clients.get(2)[key]) for key, vector in old.items())
    assert not any(torch.equal(vector, run.server.clients.get(1)[key]) for key, vector in other.items())


def test_scaffolds_server_variate_stays_the_mean_of_all_clients_when_some_are_rejected():
    run = fedmim.rounds(fedmim.Scaffold(), poisoned((5, 9, 4, 7), 1), *protocol())
    for record in run:
        assert record.refused == 1
        mean = sum(run.server.clients.get(client)["control"] for client in range(4)) / 4
        torch.testing.assert_close(run.state.slots["control"], mean, rtol=1e-12, atol=1e-13)


def test_feddyns_dual_stays_the_mean_of_all_clients_when_some_are_rejected():
    run = fedmim.rounds(fedmim.FedDyn(), poisoned((5, 9, 4, 7), 1), *protocol())
    for _ in run:
        mean = sum(run.server.clients.get(client)["dual"] for client in range(4)) / 4
        torch.testing.assert_close(run.state.slots["dual"], mean, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_a_round_in_which_all_were_rejected_changes_nothing_but_its_number(name):
    task = classification((5, 9, 4))
    run = fedmim.rounds(EVERY_METHOD[name], task, *protocol(rounds=4, engine="serial"))
    next(run)
    good = list(task.clients)
    task.clients[:] = [(torch.full_like(x, torch.nan), y) for x, y in good]
    before, held = run.state, [run.server.clients.get(client) for client in range(3)]
    with pytest.warns(UserWarning, match="round 2: every upload was rejected"):
        record = next(run)
    assert (record.refused, record.train_loss, record.consistency) == (3, None, None)
    assert (record.round, run.state.round) == (2, 2)
    assert record.test_loss is not None
    assert torch.equal(run.state.params, before.params)
    assert all(torch.equal(run.state.slots[key], slot) for key, slot in before.slots.items())
    for client, vectors in enumerate(held):
        assert all(torch.equal(run.server.clients.get(client)[key], vector) for key, vector in vectors.items())
    task.clients[:] = good
    after = next(run)  # and it goes on
    assert (after.round, after.refused) == (3, 0)
    assert not torch.equal(run.state.params, before.params)


def test_where_all_were_rejected_the_buffers_stay():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    task = classification((6, 8), model=model)
    run = fedmim.rounds(fedmim.FedAvg(), task, *protocol(rounds=2))
    next(run)
    before = run.server.buffers.clone()
    task.clients[:] = [(torch.full_like(x, torch.nan), y) for x, y in task.clients]
    with pytest.warns(UserWarning, match="every upload was rejected"):
        next(run)
    assert torch.equal(run.server.buffers, before)


def test_a_bad_buffer_is_rejected_as_well():
    """A layer whose statistics go bad although its parameters do not."""

    class Statistics(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("largest", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.largest.copy_(x.max())
            return x.nan_to_num(0.0, 1.0, -1.0)

    task = poisoned((4, 4, 4), 2, value=torch.inf, model=nn.Sequential(Statistics(), nn.Linear(4, 3).double()))
    result = fedmim.simulate(fedmim.FedAvg(), task, *protocol(rounds=1, batch_size=None))
    assert result.history[0].refused == 1
    assert result.model[0].largest.isfinite()


@pytest.mark.parametrize("value", [torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_training_loss_that_is_not_finite_is_rejected_although_the_parameters_are(engine, value):
    """The loss of the last client has a constant added, which no gradient shows."""

    def loss(outputs, targets):
        beyond = torch.where(targets >= 3, value, 0.0).sum()
        return nn.functional.cross_entropy(outputs, targets % 3) + beyond

    task = classification((5, 9, 4))
    x, y = task.clients[2]
    task.clients[2] = x, y + 3
    spoiled = replace(task, loss=loss)
    result = fedmim.simulate(fedmim.FedAvg(), spoiled, *protocol(engine=engine, batch_size=None))
    good = fedmim.simulate(fedmim.FedAvg(), classification((5, 9)), *protocol(engine=engine, batch_size=None))
    assert [record.refused for record in result.history] == [1, 1, 1]
    torch.testing.assert_close(result.params, good.params, rtol=1e-12, atol=1e-13)


def test_a_constant_buffer_that_is_not_finite_is_no_reason_to_reject():
    """As a causal mask is, minus infinity above the diagonal."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.full((3, 3), -torch.inf, dtype=torch.float64).triu(1))
            self.linear = nn.Linear(4, 3).double()

        def forward(self, x):
            return self.mask.softmax(1)[2] * self.linear(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fedmim.simulate(fedmim.FedAvg(), classification((4, 4), model=Masked()), *protocol(rounds=2))
    assert [record.refused for record in result.history] == [0, 0]
    assert torch.equal(result.model.mask, Masked().mask)


def test_large_numbers_are_not_taken_for_bad_ones():
    """The sum of these float32 parameters overflows; each of them is finite."""
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.fill_(2e38)
    task = replace(classification((4, 4), torch.float32, model), loss=lambda outputs, targets: 0 * model_free(outputs))
    result = fedmim.simulate(fedmim.FedAvg(), task, *protocol(rounds=1, weight_decay=0.0))
    assert result.history[0].refused == 0
    assert result.params[0].item() == pytest.approx(2e38, rel=1e-6)


def model_free(outputs):
    """A number that depends on the outputs with a gradient of zero."""
    return outputs.nan_to_num().clamp(-1.0, 1.0).sum()


def test_a_good_client_is_never_rejected():
    result = fedmim.simulate(fedmim.FedMIM(), classification(), *protocol())
    assert [record.refused for record in result.history] == [0, 0, 0]
    assert samples(3, 0)[0].isfinite().all()
