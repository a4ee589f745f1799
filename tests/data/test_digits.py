"""scikit-learn's digits arrive normalised, with a fixed stratified test part."""

import torch

from fedmim.data import load
from fedmim.data.digits import DIGITS


def test_digits_are_all_there_normalised_and_stratified():
    digits = load("digits")
    (x, y), (x_test, y_test) = digits.train, digits.test
    assert len(y) + len(y_test) == 1797
    assert (DIGITS.train_size, DIGITS.test_size) == (len(y), len(y_test))
    assert x.dtype == torch.float32
    assert x.shape[1:] == x_test.shape[1:] == (1, 8, 8)
    assert abs(x.mean()) < 1e-5
    assert abs(x.std() - 1) < 1e-5
    levels = torch.cat([x, x_test]).unique().diff()
    assert len(levels) == 16  # the 17 grey levels 0 to 16, evenly spaced
    assert torch.allclose(levels, levels[:1].expand(16), rtol=1e-4)
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


def test_they_are_those_that_scikit_learn_loads():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    digits = load("digits")
    x = torch.cat([digits.train[0], digits.test[0]]).flatten(1)
    assert sorted(torch.cat([digits.train[1], digits.test[1]]).tolist()) == sorted(bunch.target.tolist())
    levels = ((x - x.min()) / (x.max() - x.min()) * 16).round().to(int)
    ours = sorted(map(tuple, levels.tolist()))
    assert ours == sorted(map(tuple, bunch.data.astype(int).tolist()))
