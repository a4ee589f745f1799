"""MNIST-1D is what its package makes, the same every time, from the cache or not."""

import random

import numpy as np
import pytest
import torch

from fedmim.data import load
from fedmim.data.mnist1d import MNIST1D


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedmim" / "mnist1d.safetensors"


def test_the_signals_are_those_of_the_package_and_leave_the_global_generators_alone(cache):
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    found = load("mnist1d")
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002

    from mnist1d.data import make_dataset

    made = make_dataset()
    for (x, y), part in ((found.train, ""), (found.test, "_test")):
        assert torch.equal(x, torch.from_numpy(made["x" + part]).float())
        assert torch.equal(y, torch.from_numpy(made["y" + part]))
    assert (MNIST1D.train_size, MNIST1D.test_size) == (len(found.train[1]), len(found.test[1])) == (4000, 1000)
    assert found.train[0].shape == (4000, 40)
    assert torch.equal(found.train[1].unique(), torch.arange(10))
    together = torch.cat([found.train[0], found.test[0]])
    assert abs(together.mean()) < 1e-5
    assert abs(together.std() - 1) < 1e-3


def test_the_cache_is_used_and_a_damaged_one_is_made_again(cache, monkeypatch):
    first = load("mnist1d")
    assert cache.is_file()
    with monkeypatch.context() as without:
        without.setattr("fedmim.data.mnist1d._signals", lambda: pytest.fail("it is in the cache"))
        assert_equal(load("mnist1d"), first)
    content = bytearray(cache.read_bytes())
    content[-5] ^= 1
    cache.unlink()
    cache.write_bytes(content)
    assert_equal(load("mnist1d"), first)


def assert_equal(one, other):
    for mine, theirs in zip((*one.train, *one.test), (*other.train, *other.test), strict=True):
        assert torch.equal(mine, theirs)


def test_a_cache_that_cannot_be_written_is_said_and_the_data_is_there(cache, monkeypatch):
    cache.parent.write_text("a file where the folder belongs")
    with pytest.warns(UserWarning, match="data are not cached"):
        assert len(load("mnist1d").train[1]) == 4000
