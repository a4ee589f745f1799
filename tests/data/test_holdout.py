"""A validation part is taken from the training data, class by class; the test data goes out of sight."""

import pytest
import torch

from fedmim import Task
from fedmim.data import Dataset, load, with_validation
from fedmim.errors import UserError


def small(natural=None):
    y = torch.arange(40) % 4
    x = torch.arange(40.0).unsqueeze(1)  # each sample knows its number
    return Dataset("small", train=(x, y), test=(x[:3] - 100, y[:3]), classes=4, natural=natural)


def test_training_and_validation_parts_share_nothing_and_leave_nothing_out():
    data = with_validation(small(), 0.2)
    kept, held = data.train[0].flatten().tolist(), data.test[0].flatten().tolist()
    assert sorted(kept + held) == list(range(40))
    assert data.test[1].bincount().tolist() == [2, 2, 2, 2]
    for x, y in (data.train, data.test):
        assert torch.equal(x.flatten().long() % 4, y)  # labels stay with their samples
    assert torch.equal(with_validation(small(), 0.2).test[0], data.test[0])


def test_natural_clients_keep_their_own_samples():
    parts = (torch.arange(0, 10), torch.arange(10, 40))
    data = with_validation(small(parts), 0.5)
    x = data.train[0].flatten()
    assert [len(part) for part in data.natural] == [int((x < 10).sum()), int((x >= 10).sum())]
    assert (x[data.natural[0]] < 10).all()
    assert (x[data.natural[1]] >= 10).all()
    assert sorted(torch.cat(data.natural).tolist()) == list(range(20))


def test_a_natural_client_keeps_a_sample():
    parts = (*torch.arange(0, 30).split(1), torch.arange(30, 40))  # 30 clients with one sample
    whole, data = with_validation(small(), 0.5), with_validation(small(parts), 0.5)
    assert [len(part) for part in data.natural[:30]] == [1] * 30
    expected = {number for number in whole.test[0].flatten().tolist() if number >= 30}
    assert expected
    assert set(data.test[0].flatten().tolist()) == expected
    assert [len(part) for part in data.client_tests] == [0] * 30 + [len(expected)]


def test_a_task_with_validation_never_holds_the_test_data():
    whole, task = load("digits"), Task.named("digits", clients=5, validation=0.1)
    tested = {tuple(image.flatten().tolist()) for image in whole.test[0]}
    trained = [tuple(image.flatten().tolist()) for x, _ in task.clients for image in x]
    held = [tuple(image.flatten().tolist()) for image in task.test[0]]
    everything = {tuple(image.flatten().tolist()) for image in whole.train[0]}
    assert set(trained) | set(held) == everything
    assert len(trained) + len(held) == len(whole.train[0])
    assert not tested & (set(held) | set(trained)) - everything


def test_a_share_that_leaves_a_part_empty_is_rejected():
    with pytest.raises(UserError, match="validation: "):
        with_validation(small(), 0.01)
