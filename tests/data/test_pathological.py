"""pathological:C gives each client at most C classes; the bound on sizes is tried on random cases."""

import numpy as np
import pytest
import torch

from fedmim.data import partition


def split(labels, classes_a_client, clients, seed=0):
    parts = partition(labels, f"pathological:{classes_a_client}", clients, seed)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(labels)))
    sizes = np.array([len(part) for part in parts])
    classes = np.array([len(labels[part].unique()) for part in parts])
    return parts, sizes, classes


def test_where_shards_divide_it_is_the_split_of_mcmahan():
    labels = torch.arange(6000) % 10
    parts, sizes, classes = split(labels, 2, 100)
    assert (sizes == 60).all()
    assert (classes == 2).all()
    for part in parts:
        assert sorted(labels[part].bincount().tolist())[-2:] == [30, 30]


def test_different_clients_have_different_pairs_of_classes():
    labels = torch.arange(6000) % 10
    parts, _, _ = split(labels, 2, 100)
    pairs = {tuple(labels[part].unique().tolist()) for part in parts}
    # 100 draws among 45 pairs leave about 40 different ones; blocks of neighbours would leave 5.
    assert len(pairs) > 30


def shard_sizes(sizes, clients, per_client):
    """The definition, a cut at a time: the class with the largest shards gets one more, up to as many as clients."""
    shards = [1] * len(sizes)
    for _ in range(clients * per_client - len(sizes)):
        open_classes = [label for label in range(len(sizes)) if shards[label] < clients]
        shards[max(open_classes, key=lambda label: (sizes[label] / shards[label], -shards[label]))] += 1
    return [len(part) for size, count in zip(sizes, shards, strict=True) for part in np.array_split(range(size), count)]


def labels_of_sizes(sizes, rng):
    return torch.from_numpy(rng.permutation(np.repeat(np.arange(len(sizes)), sizes)))


def test_in_random_cases_sizes_differ_by_no_more_than_the_shards_do_and_nobody_is_left_empty():
    rng = np.random.default_rng(0)
    tried = 0
    for seed in range(300):
        sizes = rng.integers(1, rng.choice([3, 10, 60]), int(rng.integers(1, 13)))
        clients = int(rng.integers(1, min(sizes.sum(), 3 * len(sizes)) + 1))
        per_client = int(rng.integers(1, len(sizes) + 1))
        if clients * per_client < len(sizes):
            continue
        tried += 1
        _, found, classes = split(labels_of_sizes(sizes, rng), per_client, clients, seed)
        assert classes.max() <= per_client
        assert found.min() >= 1
        shards = shard_sizes(sizes, clients, per_client)
        assert found.max() - found.min() <= max(shards) - min(shards)
    assert tried > 150


def test_equal_classes_give_equal_clients_where_the_shards_can_be_shared_out_evenly():
    rng = np.random.default_rng(0)
    tried = 0
    for seed in range(300):
        classes, size = int(rng.integers(1, 13)), int(rng.integers(1, 60))
        clients, per_client = int(rng.integers(1, min(classes * size, 40) + 1)), int(rng.integers(1, classes + 1))
        if clients * per_client % classes == 0:
            tried += 1
            _, found, _ = split(labels_of_sizes([size] * classes, rng), per_client, clients, seed)
            assert found.max() - found.min() <= 1
    assert tried > 70


def test_unequal_classes_may_give_unequal_clients():
    labels = torch.repeat_interleave(torch.arange(2), torch.tensor([10, 90]))
    _, sizes, _ = split(labels, 1, 2)
    assert sorted(sizes) == [10, 90]


def test_one_class_per_client_gives_up_equal_sizes_but_not_the_class():
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor([10, 20, 33]))
    _, sizes, classes = split(labels, 1, 6)
    assert (classes == 1).all()
    # 6 clients on 10 + 20 + 33: one, two and three of them, as equal as whole classes allow.
    assert sorted(sizes) == [10, 10, 10, 11, 11, 11]


@pytest.mark.parametrize(("per_client", "clients"), [(2, 100), (5, 100), (3, 400), (4, 300)])
def test_every_client_has_exactly_c_classes_where_it_has_enough_samples(per_client, clients):
    rng = np.random.default_rng(1)
    labels = torch.from_numpy(rng.integers(0, 10, 1437))
    _, _, classes = split(labels, per_client, clients)
    assert (classes == per_client).all()
