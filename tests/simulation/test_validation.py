"""Validation data from the training data of any task."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedmim import Task
from fedmim.errors import UserError
from fedmim.simulation.validation import hold_out


def numbered(sizes, **options):
    """A task in which every training sample has its own number."""
    whole = torch.arange(float(sum(sizes)))[:, None]
    clients = [(part, part[:, 0].long()) for part in whole.split(sizes)]
    return Task(nn.Linear(1, 2), clients, test=(torch.full((5, 1), -1.0), torch.zeros(5).long()), **options)


def test_every_sample_is_either_kept_by_its_client_or_held_out():
    task = numbered([10, 3, 1, 26], names=["a", "b", "c", "d"])
    held = hold_out(task, 0.25)
    test = held.test[0][:, 0].tolist()
    for before, after in zip(task.clients, held.clients, strict=True):
        assert sorted([*after[0][:, 0].tolist(), *(n for n in test if n in before[0])]) == before[0][:, 0].tolist()
        assert torch.equal(after[1], after[0][:, 0].long())
    # Of 10, 13, 14 and 40 samples: 2, 3, 3 and 10.
    assert [len(y) for _, y in held.clients] == [8, 2, 1, 19]
    assert len(test) == 10
    assert torch.equal(held.test[1], held.test[0][:, 0].long())
    assert held.names == ["a", "b", "c", "d"]


def test_it_is_the_same_every_time():
    first, again = (hold_out(numbered([10, 30]), 0.25).test[0] for _ in range(2))
    assert torch.equal(first, again)


def test_a_client_keeps_its_last_sample():
    held = hold_out(numbered([1, 1, 8]), 0.9)
    assert [len(y) for _, y in held.clients] == [1, 1, 1]


def test_structured_samples_are_held_out_together():
    x = {"a": torch.arange(8.0), "b": torch.arange(8.0) * 2}
    held = hold_out(Task(nn.Linear(1, 1), [(x, torch.arange(8))], (x, torch.arange(8))), 0.5)
    for inputs, y in (held.test, held.clients[0]):
        assert torch.equal(inputs["b"], 2 * inputs["a"])
        assert torch.equal(inputs["a"].long(), y)


def test_a_fraction_that_is_too_small_is_rejected():
    with pytest.raises(UserError, match="leaves no validation samples"):
        hold_out(numbered([2, 2]), 0.1)


def test_live_data_is_rejected():
    data = [(torch.zeros(1), 0)] * 4
    task = Task.from_datasets(nn.Linear(1, 2), [data, data], data, live=True)
    with pytest.raises(UserError, match="read live"):
        hold_out(task, 0.5)


def test_clients_of_different_shapes_are_rejected():
    clients = [(torch.zeros(4, width), torch.zeros(4).long()) for width in (1, 2)]
    with pytest.raises(UserError, match="validation: cannot hold out samples of clients that differ in shape"):
        hold_out(Task(nn.Linear(1, 1), clients, clients[0]), 0.5)
