"""Every split is an exact partition, decided by its seed alone; impossible ones are rejected in one line."""

import time

import numpy as np
import pytest
import torch

from fedmim.data import partition
from fedmim.errors import UserError

SPLITS = ["iid", "dirichlet:0.1", "dirichlet:1e-3", "dirichlet:1e-320", "dirichlet:1e300", "pathological:2"]
LABELS = torch.tensor([label for label in range(7) for _ in range(20 + 9 * label)])  # sorted, unequal classes
NATURAL = (torch.tensor([0, 2]), torch.tensor([1]))


def assert_exact(parts, samples):
    assert all(part.dtype == torch.int64 for part in parts)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(samples))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("clients", [10, 37, 300])
def test_every_index_goes_to_one_client_and_sizes_differ_by_at_most_one(split, clients):
    parts = partition(LABELS, split, clients, seed=1)
    assert len(parts) == clients
    assert_exact(parts, len(LABELS))
    sizes = [len(part) for part in parts]
    if not split.startswith("pathological"):  # where unequal classes give unequal clients
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("split", SPLITS)
def test_the_seed_alone_decides(split):
    first = partition(LABELS, split, 20, seed=5)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 (the global generator is what must not matter)
    again = partition(LABELS, split, 20, seed=5)
    other = partition(LABELS, split, 20, seed=6)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert any(not torch.equal(one, two) for one, two in zip(first, other, strict=True))


@pytest.mark.parametrize("split", SPLITS)
def test_the_global_generators_are_not_touched(split):
    state = torch.get_rng_state()
    partition(LABELS, split, 20, seed=5)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("split", ["iid", "dirichlet:0.1", "dirichlet:1e-3", "pathological:2"])
def test_ten_thousand_clients_on_fifty_thousand_samples_take_seconds(split):
    labels = torch.arange(50_000) % 10
    begin = time.perf_counter()
    parts = partition(labels, split, 10_000, seed=0)
    assert time.perf_counter() - begin < 5
    assert {len(part) for part in parts} == {5}
    assert_exact(parts, 50_000)


@pytest.mark.parametrize("split", ["iid", "dirichlet:0.5", "pathological:1"])
def test_as_many_clients_as_samples_get_one_each(split):
    labels = torch.arange(30) % 3
    assert [len(part) for part in partition(labels, split, 30, seed=0)] == [1] * 30


def test_one_client_gets_all():
    for split in ("iid", "dirichlet:0.1", "pathological:7"):
        (part,) = partition(LABELS, split, 1, seed=0)
        assert torch.equal(part, torch.arange(len(LABELS)))


def test_iid_gives_every_client_the_global_mixture():
    labels = torch.arange(10_000) % 10
    counts = torch.stack([labels[part].bincount(minlength=10) for part in partition(labels, "iid", 10, seed=0)])
    # Hypergeometric: mean 100, deviation 9; five deviations over 100 cells.
    assert (counts - 100).abs().max() < 45


def test_natural_gives_the_parts_of_the_data():
    parts = partition(torch.zeros(3), "natural", 2, seed=0, natural=NATURAL)
    assert [part.tolist() for part in parts] == [[0, 2], [1]]
    assert len(partition(torch.zeros(3), "natural", 0, seed=0, natural=NATURAL)) == 2


@pytest.mark.parametrize(
    ("split", "clients", "natural", "message"),
    [
        ("natural", 4, None, "no natural clients"),
        ("natural", 5, NATURAL, "must be 2, the number of natural clients"),
        ("iid", 500, None, "clients: must be at most 329, the number of training samples, got 500"),
        ("dirichlet:0.1", 0, None, "clients: must be at least 1"),
        ("dirichlet:0", 10, None, "U must be"),
        ("dirichlet:-1", 10, None, "U must be"),
        ("dirichlet:nan", 10, None, "U must be"),
        ("dirichlet:inf", 10, None, "U must be"),
        ("dirichlet:a", 10, None, "U must be"),
        ("dirichlet", 10, None, "U must be"),
        ("pathological:0", 10, None, "C must be"),
        ("pathological:-2", 10, None, "C must be"),
        ("pathological:1.5", 10, None, "C must be"),
        ("pathological:", 10, None, "C must be"),
        ("pathological:8", 10, None, "at most the number of classes, 7"),
        ("pathological:2", 3, None, "at least 4 clients"),
        ("dirichlt:0.1", 10, None, "did you mean 'dirichlet:U'"),
        ("natral", 10, None, "did you mean 'natural'"),
        ("iid:3", 10, None, "not known"),
    ],
)
def test_impossible_splits_are_rejected_in_one_line(split, clients, natural, message):
    with pytest.raises(UserError, match=message) as caught:
        partition(LABELS, split, clients, seed=0, natural=natural)
    assert "\n" not in str(caught.value)


def test_a_split_that_does_not_fit_into_memory_is_rejected(monkeypatch):
    monkeypatch.setattr("fedmim.memory.available_memory", lambda: 10**6)
    labels = torch.arange(1000)
    with pytest.raises(UserError, match=r"^split: dirichlet:0.1 of 1,000 classes over 500 clients needs about 25.0 MB"):
        partition(labels, "dirichlet:0.1", 500, seed=0)
    assert len(partition(labels, "iid", 500, seed=0)) == 500
