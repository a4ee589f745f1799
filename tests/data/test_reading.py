"""Reading Datasets and lists of items into tensors; items that do not fit are named with the remedy."""

# ruff: noqa: NPY002 (transforms of users draw from NumPy's global state)
from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from fedmim.data import Reader
from fedmim.data.reading import READ_TWICE, same
from fedmim.errors import UserError

ROWS = [{"image": [[n, n + 1]], "mask": np.array([n > 1]), "label": n % 2} for n in range(4)]  # as in Hugging Face


def read(dataset, **options):
    return Reader(**options).read("train", dataset)


def test_a_tuple_of_two_is_x_and_y():
    pair = ({"a": torch.ones(3)}, torch.ones(3))
    assert read(pair) is pair


@pytest.mark.parametrize("number", [2, 2.5, np.float64(0.5), torch.tensor(3)], ids=str)
def test_numbers_lists_and_arrays_become_tensors(number):
    x, y = read([([1, 2, 3], number), (np.array([4, 5, 6]), number)])
    assert torch.equal(x, torch.tensor([[1, 2, 3], [4, 5, 6]]))
    assert torch.equal(y, torch.as_tensor(number).expand(2))


def test_structures_keep_their_names_and_order():
    items = [((torch.tensor([n]), {"a": np.array(n), "b": [n, n]}), (n, n + 1)) for n in range(3)]
    x, y = read(items)
    assert torch.equal(x[0], torch.tensor([[0], [1], [2]]))
    assert torch.equal(x[1]["a"], torch.arange(3))
    assert torch.equal(x[1]["b"], torch.arange(3).unsqueeze(1).expand(-1, 2))
    assert torch.equal(y, torch.tensor([[0, 1], [1, 2], [2, 3]]))  # numbers only: one tensor


def test_columns_select_from_dict_items():
    x, y = read(ROWS, columns=("image", "label"))
    assert torch.equal(x, torch.tensor([[[n, n + 1]] for n in range(4)]))
    assert torch.equal(y, torch.tensor([0, 1, 0, 1]))
    x, y = read(ROWS, columns=(("mask", "image"), ("label",)))
    assert list(x) == ["mask", "image"]
    assert list(y) == ["label"]
    assert torch.equal(x["mask"], torch.tensor([[False], [False], [True], [True]]))


def pad(items):
    words = [torch.tensor(words) for words, _ in items]
    return torch.nn.utils.rnn.pad_sequence(words, batch_first=True), torch.tensor([label for _, label in items])


SENTENCES = [([1, 2], 0), ([3], 1), ([4, 5, 6], 1)]


def test_collate_gets_all_items_at_once():
    x, y = read(SENTENCES, collate=pad)
    assert torch.equal(x, torch.tensor([[1, 2, 0], [3, 0, 0], [4, 5, 6]]))
    assert torch.equal(y, torch.tensor([0, 1, 1]))


def test_columns_select_from_a_dict_that_collate_returns():
    def collate(items):
        x, y = pad(items)
        return {"ids": x, "unused": None, "labels": y}

    x, y = read(SENTENCES, collate=collate, columns=(("ids",), "labels"))
    assert list(x) == ["ids"]
    assert torch.equal(y, torch.tensor([0, 1, 1]))


def test_collate_pads_all_clients_to_the_same_length():
    pair = torch.zeros(2, 7), torch.zeros(2)
    data = {"client 0": SENTENCES[:2], "client 1": pair, "client 2": SENTENCES[2:]}
    first, second, third = Reader(collate=pad).read_each(data)
    assert torch.equal(first[0], torch.tensor([[1, 2, 0], [3, 0, 0]]))
    assert torch.equal(first[1], torch.tensor([0, 1]))
    assert second is pair
    assert torch.equal(third[0], torch.tensor([[4, 5, 6]]))


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (ROWS, {}, r"train: an item is a dict; name its columns of x and y, as in columns=\('image', 'mask'\)"),
        (ROWS, {"columns": ("image", "lable")}, r"columns: column: 'lable' is not known; did you mean 'label'\?"),
        (ROWS, {"columns": "image"}, "columns: must be two"),
        (ROWS, {"columns": ("image", "mask", "label")}, "columns: must be two"),
        ([(1, 2, 3)], {}, r"train: an item must be \(x, y\), got tuple of 3; several inputs are one x"),
        ([5], {}, r"train: an item must be \(x, y\), got int"),
        (SENTENCES, {}, r"train: x has the shapes \(2,\) and \(1,\); pad its items with `collate`"),
        ([("text", 0)], {}, "train: x is of type str, which torch.as_tensor does not take .* with `collate`"),
        ([({"a": 1}, 0), ({"b": 1}, 0)], {}, "train: x must have the same parts in all items"),
        ([((torch.ones(1),), 0), (torch.ones(()), 0)], {}, "train: x must have the same parts in all items"),
        (SENTENCES, {"collate": lambda items: len(items)}, r"train: the result of collate must be \(x, y\), got int"),
        ([], {}, "train: must not be empty"),
        ({"x": 1}, {}, "train: must be a pair .* got dict"),
        ("file.csv", {}, "train: must be a pair .* got str"),
        (iter(SENTENCES), {}, "train: must be a pair .* got list_iterator"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_remedy(dataset, options, message):
    with pytest.raises(UserError, match=f"^{message}"):
        read(dataset, **options)


def test_collate_must_keep_the_number_of_items():
    with pytest.raises(UserError, match=r"^collate: must return as many samples as items, 3, got 2"):
        Reader(collate=lambda items: (torch.ones(2), torch.ones(2))).read_each({"client 0": SENTENCES})


class Noisy:
    """Random items, by each of the three global generators."""

    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return torch.tensor([index + self.draw()]), 0


DRAWS = {"torch": lambda: torch.rand(()).item(), "numpy": lambda: np.random.rand(), "python": random.random}


@pytest.mark.parametrize("name", DRAWS)
def test_random_items_are_not_frozen_in_silence(name):
    with pytest.raises(UserError, match=r"^train: item 0 is different when it is read again, .*; use live=True"):
        read(Noisy(DRAWS[name]))


def test_a_random_flip_is_found_within_a_few_items():
    """All items but the last that is read twice are the same both times."""
    reads = []

    class Flipped(Noisy):
        def __len__(self):
            return 20

        def __getitem__(self, index):
            reads.append(index)
            return torch.tensor([float(index == READ_TWICE - 1 and len(reads) > 20)]), 0

    with pytest.raises(UserError, match=f"^train: item {READ_TWICE - 1} is different"):
        read(Flipped(None))
    assert reads == [*range(20), *range(READ_TWICE)]


def test_reading_twice_draws_nothing_more_from_the_global_generators():
    class Drawing(Noisy):
        def __getitem__(self, index):
            torch.rand(()), np.random.rand(), random.random()
            return torch.tensor([index]), 0

    def drawn():
        return torch.rand(()).item(), np.random.rand(), random.random()

    def seed():
        torch.manual_seed(1), np.random.seed(1), random.seed(1)

    with torch.random.fork_rng(devices=[]):
        seed()
        read(Drawing(None))
        found = drawn()
        seed()
        for _ in range(3):
            drawn()
        assert found == drawn()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan]), True),
        (torch.tensor([1.0, torch.nan]), torch.tensor([2.0, torch.nan]), False),
        (np.ones(3), np.ones(4), False),
        ({"a": [1, "b"]}, {"a": [1, "b"]}, True),
        ({"a": [1, "b"]}, {"a": [1, "c"]}, False),
        (float("nan"), float("nan"), True),
        (object(), object(), True),  # cannot be compared
    ],
    ids=range(7),
)
def test_two_readings_of_an_item_are_compared_by_value(one, other, expected):
    assert same(one, other) is expected
