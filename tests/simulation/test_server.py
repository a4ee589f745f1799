"""The server step on its own: replies are taken or rejected, and nothing counts before the commit."""

from __future__ import annotations

import pytest
import torch
from problems import busy, classification

import fedmim
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.simulation.server import Aggregation, Server
from fedmim.simulation.training import Reply

TASK = classification((3, 5, 2))
FLAT = FlatModel(TASK.model, TASK.loss)


def server(folder=None, **options):
    return Server(fedmim.Scaffold(), busy()[0], FLAT, folder, **options)


def reply(client, value, finite=True):
    vector = torch.full_like(FLAT.params, value)
    buffers = torch.zeros(0, dtype=torch.float64)
    return Reply(client, {"params": vector}, {"control": vector}, buffers, value, 1, finite)


def aggregate(ours):
    return Aggregation(ours, ours.algorithm.broadcast(ours.state))


def test_a_closed_round_counts_from_the_commit_on():
    ours = server()
    aggregation = aggregate(ours)
    assert aggregation.take(reply(0, 1.0), 3)
    assert aggregation.take(reply(2, 3.0), 2)
    closed = aggregation.close(3.0, (0, 1, 2), 10, 20)
    assert (ours.state.round, ours.clients.places) == (0, {})
    assert torch.equal(ours.state.params, FLAT.params)
    ours.commit(closed)
    assert (ours.state.round, ours.clients.places) == (1, {0: 0, 2: 0})
    assert torch.equal(ours.state.params, torch.full_like(FLAT.params, 2.0))
    record = closed.record
    assert (record.round, record.train_loss, record.clients, record.refused) == (1, 2.0, (0, 1, 2), 0)
    assert (record.bytes_up, record.bytes_down, record.consistency) == (10, 20, pytest.approx(len(FLAT.params)))


@pytest.mark.parametrize("bad", [reply(1, torch.nan), reply(1, torch.inf), reply(1, 1.0, finite=False)])
def test_a_reply_that_is_not_finite_or_says_so_itself_is_rejected_and_changes_nothing(bad):
    ours = server()
    aggregation = aggregate(ours)
    assert not aggregation.take(bad, 5)
    closed = aggregation.close(3.0, (1,), 0, 0)
    ours.commit(closed)
    assert (closed.record.refused, aggregation.accepted, ours.state.round) == (1, 0, 1)
    assert torch.equal(ours.state.params, FLAT.params)
    assert ours.clients.places == {}


def test_a_rollback_leaves_all_as_before_the_round():
    ours = server()
    aggregate(ours).take(reply(0, 1.0), 3)
    ours.rollback()
    ours.commit(aggregate(ours).close(3.0, (), 0, 0))
    assert ours.clients.places == {}


def test_where_clients_store_their_vectors_the_server_knows_the_rounds_alone(tmp_path):
    ours = server(tmp_path, vectors_here=False)
    aggregation = aggregate(ours)
    aggregation.take(reply(1, 1.0), 3)
    ours.commit(aggregation.close(3.0, (1,), 0, 0))
    ours.save()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]
    again = server(tmp_path, vectors_here=False)
    again.restore()
    assert again.clients.places == {1: 0}


def test_facts_are_kept_with_the_settings_and_another_one_is_named(tmp_path):
    server(tmp_path, facts={"clients": 3, "run": "a1"}).save()
    again = server(tmp_path, facts={"clients": 3})
    again.restore()
    assert again.facts == {"clients": 3, "run": "a1"}
    with pytest.raises(UserError, match="the run there has a different clients"):
        server(tmp_path, facts={"clients": 4}).restore()
