"""pathological:C gives at most C classes a client; when sizes are equal is proven, and tried on random cases."""

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


def random_case(rng):
    classes = int(rng.integers(1, 13))
    sizes = rng.integers(1, rng.choice([3, 10, 60]), classes)
    labels = torch.from_numpy(rng.permutation(np.repeat(np.arange(classes), sizes)))
    clients = int(rng.integers(1, min(len(labels), 3 * classes) + 1))
    return labels, classes, clients, int(rng.integers(1, classes + 1))


def test_random_cases_are_exact_have_at_most_c_classes_and_equal_sizes_where_promised():
    rng = np.random.default_rng(0)
    promised = 0
    for seed in range(600):
        labels, classes, clients, per_client = random_case(rng)
        if clients * per_client < classes:
            continue
        _, sizes, found = split(labels, per_client, clients, seed)
        assert found.max() <= per_client
        if per_client >= 2 and clients * (per_client - 1) >= classes - 1:
            promised += 1
            assert sizes.max() - sizes.min() <= 1
    assert promised > 200


def test_the_tightest_case_that_is_promised_has_equal_sizes():
    # 9 clients of 2 classes on 10 classes: the graph of who holds what must be a tree.
    labels = torch.repeat_interleave(torch.arange(10), torch.tensor([1, 2, 3, 5, 8, 13, 21, 34, 55, 38]))
    _, sizes, classes = split(labels, 2, 9)
    assert (sizes == 20).all()
    assert classes.max() <= 2


def test_one_class_a_client_gives_up_equal_sizes_but_not_the_class():
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor([10, 20, 33]))
    _, sizes, classes = split(labels, 1, 6)
    assert (classes == 1).all()
    # 6 clients on 10 + 20 + 33: one, two and three of them, as equal as whole classes allow.
    assert sorted(sizes) == [10, 10, 10, 11, 11, 11]


@pytest.mark.parametrize(("per_client", "clients"), [(2, 100), (5, 100), (3, 400), (4, 300)])
def test_every_client_has_exactly_c_classes_where_it_has_enough_samples(per_client, clients):
    rng = np.random.default_rng(1)
    labels = torch.from_numpy(rng.integers(0, 10, 1437))
    _, sizes, classes = split(labels, per_client, clients)
    assert (classes == per_client).all()
    assert sizes.max() - sizes.min() <= 1
