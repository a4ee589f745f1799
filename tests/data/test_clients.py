"""Clients hand out the samples of their parts, when asked."""

import pytest
import torch

from fedmim.data import Clients, ColourShift
from fedmim.errors import UserError

X = torch.arange(12).view(6, 2).float()
Y = torch.tensor([0, 1, 0, 1, 2, 2])
PARTS = [torch.tensor([5, 0]), torch.tensor([1, 2, 3]), torch.tensor([4])]


def test_a_client_has_the_samples_of_its_part():
    clients = Clients(X, Y, PARTS)
    assert len(clients) == 3
    assert clients.sizes == [2, 3, 1]
    x, y = clients[1]
    assert x.tolist() == [[2, 3], [4, 5], [6, 7]]
    assert y.tolist() == [1, 0, 1]


def test_clients_are_a_sequence():
    clients = Clients(X, Y, PARTS)
    assert [len(y) for _, y in clients] == [2, 3, 1]
    assert clients[-1][1].tolist() == [2]
    assert [y.tolist() for _, y in clients[1:]] == [[1, 0, 1], [2]]
    with pytest.raises(IndexError):
        clients[3]


def test_each_client_sees_its_own_colours_also_counted_from_the_end():
    x = torch.full((6, 3, 4, 4), 100, dtype=torch.uint8)
    colour = ColourShift(0.5, seed=0)
    clients = Clients(x, Y, PARTS, colour=colour)
    for client in range(3):
        assert torch.equal(clients[client][0], colour(x[PARTS[client]], client))
    assert torch.equal(clients[-1][0], clients[2][0])
    assert (x == 100).all()


@pytest.mark.parametrize("x", [X, torch.zeros(6, 1, 8, 8), torch.zeros(6, 2, 8, 8, dtype=torch.uint8)])
def test_data_without_colours_refuses_a_colour_shift(x):
    with pytest.raises(UserError, match="colour shift"):
        Clients(x, Y, PARTS, colour=ColourShift(0.5))


def test_labels_for_other_samples_are_rejected():
    with pytest.raises(UserError, match="6 samples but y has 5"):
        Clients(X, Y[:5], PARTS)
