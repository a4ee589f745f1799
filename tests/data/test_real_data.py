"""The official files themselves, where FEDMIM_DATA has them."""

import os

import pytest
import torch

from fedmim.data import Normalise, known, load

DIRECTORY = os.environ.get("FEDMIM_DATA")
FOUND = {entry.name for entry in known(DIRECTORY) if entry.found} if DIRECTORY else set()


def real(name):
    return pytest.mark.skipif(name not in FOUND, reason=f"FEDMIM_DATA has no {name}")


@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        pytest.param("fashion-mnist", (60_000, 1, 28, 28), 10_000, 10, marks=real("fashion-mnist")),
        pytest.param("cifar10", (50_000, 3, 32, 32), 10_000, 10, marks=real("cifar10")),
        pytest.param("cifar100", (50_000, 3, 32, 32), 10_000, 100, marks=real("cifar100")),
    ],
)
def test_images_have_the_published_sizes_and_the_constants_are_theirs(name, train, test, classes):
    data = load(name, DIRECTORY)
    x, y = data.train
    assert x.shape == train
    assert len(data.test[1]) == test
    assert y.bincount().tolist() == [len(y) // classes] * classes
    own = Normalise.of(x)
    assert own.mean == pytest.approx(data.prepare.mean, abs=1e-4)
    assert own.std == pytest.approx(data.prepare.std, abs=2e-4)


@real("heart-disease")
def test_the_hospitals_have_the_published_patients():
    data = load("heart-disease", DIRECTORY)
    assert len(data.train[1]) + len(data.test[1]) == 920
    assert int(data.train[1].sum() + data.test[1].sum()) == 509  # 139 + 106 + 115 + 149 with disease
    assert [len(part) for part in data.natural] == [227, 221, 92, 150]
    assert torch.isfinite(data.train[0]).all()
    assert torch.isfinite(data.test[0]).all()
