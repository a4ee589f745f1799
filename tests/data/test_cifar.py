"""CIFAR files made in the official format are read; wrong checksums and hostile pickles are refused."""

import hashlib
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedmim.data import CropFlip, DataError, load
from fedmim.data.array_pickle import load_arrays
from fedmim.data.cifar import CIFAR10, CIFAR100, load_cifar

RNG = np.random.default_rng(0)


def batch(count, label_key, classes):
    return {
        b"batch_label": b"training batch 1 of 5",
        label_key: [int(label) for label in RNG.integers(0, classes, count)],
        b"data": RNG.integers(0, 256, (count, 3072), dtype=np.uint8),
        b"filenames": [b"image.png"] * count,
    }


def written(cifar, directory, contents):
    """The files, and the data set's description with their checksums in place of the official ones."""
    folder = directory / cifar.folder
    folder.mkdir()
    sums = {}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        sums[name] = hashlib.md5(content).hexdigest()
    return replace(
        cifar, train={name: sums[name] for name in cifar.train}, test={name: sums[name] for name in cifar.test}
    )


@pytest.mark.parametrize("cifar", [CIFAR10, CIFAR100])
def test_official_files_are_read_in_order(tmp_path, cifar):
    batches = {name: batch(7, cifar.label_key, cifar.classes) for name in [*cifar.train, *cifar.test]}
    small = written(cifar, tmp_path, {name: pickle.dumps(content, 2) for name, content in batches.items()})
    data = load_cifar(small, tmp_path)
    x, y = data.train
    assert (x.dtype, y.dtype, data.classes) == (torch.uint8, torch.int64, cifar.classes)
    rows = np.concatenate([batches[name][b"data"] for name in cifar.train])
    # A row is 1,024 red, then green, then blue values, each row by row.
    assert np.array_equal(x.numpy(), rows.reshape(-1, 3, 32, 32))
    assert y.tolist() == sum((batches[name][cifar.label_key] for name in cifar.train), [])
    assert data.test[0].shape == (7, 3, 32, 32)
    assert data.augment == CropFlip(4)


def test_a_wrong_checksum_is_refused_before_anything_is_unpickled(tmp_path):
    marker = tmp_path / "executed"
    hostile = pickle.dumps(Hostile(f"touch {marker}"), 2)
    contents = {name: hostile for name in [*CIFAR10.train, *CIFAR10.test]}
    written(CIFAR10, tmp_path, contents)
    with pytest.raises(DataError, match=r"data_batch_1 is damaged: its MD5 is .* not c99cafc152244af753f735de768cd75f"):
        load("cifar10", tmp_path)
    assert not marker.exists()


class Hostile:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_refused_even_with_the_right_checksum(tmp_path, protocol):
    marker = tmp_path / "executed"
    hostile = pickle.dumps({b"data": Hostile(f"touch {marker}"), b"labels": []}, protocol)
    small = written(CIFAR10, tmp_path, {name: hostile for name in [*CIFAR10.train, *CIFAR10.test]})
    with pytest.raises(DataError, match=r"data_batch_1 is damaged: it cannot be read .*only arrays are read"):
        load_cifar(small, tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("name", [b"builtins\neval", b"posix\nsystem", b"numpy\nload", b"numpy\nndarray.tofile"])
def test_the_unpickler_knows_no_name_but_those_of_arrays(name):
    with pytest.raises(pickle.UnpicklingError, match="only arrays are read"):
        load_arrays(b"c" + name + b"\n.")


def test_the_unpickler_reads_arrays_of_old_and_new_numpy():
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    new = pickle.dumps(array, 2)
    for module in (b"numpy.core.multiarray", b"numpy._core.multiarray"):
        content = new.replace(b"numpy._core.multiarray", module).replace(b"numpy.core.multiarray", module)
        assert np.array_equal(load_arrays(content), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(batch(7, b"labels", 10), 2)[:-500], "it cannot be read"),
        (b"", "it cannot be read"),
        (pickle.dumps([1, 2], 2), "lacks its data or labels"),
        (pickle.dumps({b"data": np.zeros((7, 3072), np.uint8)}, 2), "lacks its data or labels"),
        (pickle.dumps({b"data": np.zeros((7, 3000), np.uint8), b"labels": [0] * 7}, 2), "3,072 bytes"),
        (pickle.dumps({b"data": np.zeros((7, 3072)), b"labels": [0] * 7}, 2), "3,072 bytes"),
        (pickle.dumps({b"data": np.zeros((6, 3072), np.uint8), b"labels": [0] * 7}, 2), "3,072 bytes"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 10]}, 2), "from 0 to 9"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, -1]}, 2), "from 0 to 9"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [b"a", b"b"]}, 2), "list of numbers"),
        (pickle.dumps({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}, 2), "list of numbers"),
    ],
)
def test_damaged_content_is_refused_by_name(tmp_path, content, message):
    small = written(CIFAR10, tmp_path, {name: content for name in [*CIFAR10.train, *CIFAR10.test]})
    with pytest.raises(DataError, match=f"data_batch_1 is damaged.*{message}"):
        load_cifar(small, tmp_path)


def test_missing_folder_and_missing_file_name_both_remedies(tmp_path):
    with pytest.raises(DataError, match=r"cifar-10-batches-py.*--data-dir.*fedmim data fetch cifar10"):
        load("cifar10", tmp_path)
    (tmp_path / CIFAR10.folder).mkdir()
    with pytest.raises(DataError, match=r"data_batch_1 is missing.*fedmim data fetch cifar10"):
        load("cifar10", tmp_path)
