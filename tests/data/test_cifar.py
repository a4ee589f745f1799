"""CIFAR files made in the official format are read; wrong checksums and hostile pickles are rejected."""

import hashlib
import io
import os
import pickle
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedmim.data import CropFlip, load
from fedmim.data.cifar import CIFAR10, CIFAR100, load_arrays
from fedmim.errors import UserError

RNG = np.random.default_rng(0)


class Python2Pickler(pickle._Pickler):
    """Writes both kinds of strings as Python 2 wrote its own, which is how the official files have them."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_string(self, value):
        content = value.encode() if isinstance(value, str) else value
        short = len(content) < 256
        self.write((b"U" + bytes([len(content)]) if short else b"T" + struct.pack("<i", len(content))) + content)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_string


def python2_pickle(value):
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue().replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")


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
    parts = [{name: sums[name] for name in part} for part in (cifar.train_files, cifar.test_files)]
    return replace(cifar, train_files=parts[0], test_files=parts[1])


@pytest.mark.parametrize("cifar", [CIFAR10, CIFAR100])
def test_official_files_are_read_in_order(tmp_path, cifar):
    batches = {name: batch(7, cifar.label_key, cifar.classes) for name in [*cifar.train_files, *cifar.test_files]}
    small = written(cifar, tmp_path, {name: python2_pickle(content) for name, content in batches.items()})
    data = small.load(tmp_path)
    x, y = data.train
    assert (x.dtype, y.dtype, data.classes) == (torch.uint8, torch.int64, cifar.classes)
    rows = np.concatenate([batches[name][b"data"] for name in cifar.train_files])
    # A row is 1,024 red, then green, then blue values, each row by row.
    assert np.array_equal(x.numpy(), rows.reshape(-1, 3, 32, 32))
    assert y.tolist() == [label for name in cifar.train_files for label in batches[name][cifar.label_key]]
    assert data.test[0].shape == (7, 3, 32, 32)
    assert data.augment == CropFlip(4)


def test_a_wrong_checksum_is_rejected_before_anything_is_unpickled(tmp_path):
    marker = tmp_path / "executed"
    hostile = pickle.dumps(Hostile(f"touch {marker}"), 2)
    contents = dict.fromkeys([*CIFAR10.train_files, *CIFAR10.test_files], hostile)
    written(CIFAR10, tmp_path, contents)
    with pytest.raises(UserError, match=r"data_batch_1 is damaged: its MD5 is .* not c99cafc152244af753f735de768cd75f"):
        load("cifar10", tmp_path)
    assert not marker.exists()


class Hostile:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_rejected_even_with_the_right_checksum(tmp_path, protocol):
    marker = tmp_path / "executed"
    hostile = pickle.dumps({b"data": Hostile(f"touch {marker}"), b"labels": []}, protocol)
    small = written(CIFAR10, tmp_path, dict.fromkeys([*CIFAR10.train_files, *CIFAR10.test_files], hostile))
    with pytest.raises(UserError, match=r"data_batch_1 is damaged: it cannot be read .*only arrays are allowed"):
        small.load(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("name", [b"builtins\neval", b"posix\nsystem", b"numpy\nload", b"numpy\nndarray.tofile"])
def test_the_unpickler_knows_no_name_but_those_of_arrays(name):
    with pytest.raises(pickle.UnpicklingError, match="only arrays are allowed"):
        load_arrays(b"c" + name + b"\n.")


def test_the_unpickler_reads_arrays_of_old_and_new_numpy():
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    old = python2_pickle(array)
    assert b"numpy.core.multiarray" in old
    for content in (old, old.replace(b"numpy.core", b"numpy._core"), pickle.dumps(array, 3)):
        assert np.array_equal(load_arrays(content), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (python2_pickle(batch(7, b"labels", 10))[:-500], "it cannot be read"),
        (b"", "it cannot be read"),
        (python2_pickle([1, 2]), "has no data or no labels"),
        (python2_pickle({b"data": np.zeros((7, 3072), np.uint8)}), "has no data or no labels"),
        (python2_pickle({b"data": np.zeros((7, 3000), np.uint8), b"labels": [0] * 7}), "3,072 bytes"),
        (python2_pickle({b"data": np.zeros((7, 3072)), b"labels": [0] * 7}), "3,072 bytes"),
        (python2_pickle({b"data": np.zeros((6, 3072), np.uint8), b"labels": [0] * 7}), "3,072 bytes"),
        (python2_pickle({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 10]}), "from 0 to 9"),
        (python2_pickle({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, -1]}), "from 0 to 9"),
        (python2_pickle({b"data": np.zeros((2, 3072), np.uint8), b"labels": [b"a", b"b"]}), "list of numbers"),
        (python2_pickle({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}), "list of numbers"),
    ],
)
def test_damaged_content_is_rejected_by_name(tmp_path, content, message):
    small = written(CIFAR10, tmp_path, dict.fromkeys([*CIFAR10.train_files, *CIFAR10.test_files], content))
    with pytest.raises(UserError, match=f"data_batch_1 is damaged.*{message}"):
        small.load(tmp_path)


def test_missing_folder_and_missing_file_name_both_remedies(tmp_path):
    with pytest.raises(UserError, match=r"cifar-10-batches-py.*--data-dir.*fedmim data fetch cifar10"):
        load("cifar10", tmp_path)
    (tmp_path / CIFAR10.folder).mkdir()
    with pytest.raises(UserError, match=r"data_batch_1 is missing.*fedmim data fetch cifar10"):
        load("cifar10", tmp_path)
