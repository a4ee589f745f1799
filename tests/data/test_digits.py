"""scikit-learn's digits arrive scaled, with a fixed stratified test part."""

import torch

from fedmim.data import known, load


def test_digits_are_all_there_scaled_and_stratified():
    digits = load("digits")
    (x, y), (x_test, y_test) = digits.train, digits.test
    assert len(y) + len(y_test) == 1797
    assert [(entry.train, entry.test) for entry in known() if entry.name == "digits"] == [(len(y), len(y_test))]
    assert x.dtype == torch.float32
    assert x.shape[1:] == x_test.shape[1:] == (1, 8, 8)
    assert (x.min(), x.max()) == (0, 1)
    assert digits.classes == 10
    whole = y.bincount() + y_test.bincount()
    assert (y_test.bincount() / whole - 0.2).abs().max() < 0.5 / 174 + 1e-6  # rounded, classes of 174 or more
    assert digits.prepare is None
    assert digits.augment is None
    assert digits.natural is None


def test_the_test_part_is_the_same_every_time_and_shares_nothing_with_training():
    first, again = load("digits"), load("digits")
    assert torch.equal(first.test[0], again.test[0])
    train = {tuple(image.flatten().tolist()) for image in first.train[0]}
    assert not any(tuple(image.flatten().tolist()) in train for image in first.test[0])
