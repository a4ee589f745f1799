"""IDX files made in the official format are read; damaged ones are rejected by name."""

import gzip
import struct

import numpy as np
import pytest
import torch

from fedmim.data import load
from fedmim.errors import UserError

RNG = np.random.default_rng(0)
CONTENT = {
    "train-images-idx3-ubyte": RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8),
    "train-labels-idx1-ubyte": np.arange(30, dtype=np.uint8) % 10,
    "t10k-images-idx3-ubyte": RNG.integers(0, 256, (10, 28, 28), dtype=np.uint8),
    "t10k-labels-idx1-ubyte": np.arange(10, dtype=np.uint8),
}


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(folder, zipped):
    folder.mkdir(parents=True)
    for name, array in CONTENT.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    return folder


@pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("zipped", [False, True])
def test_raw_and_gzipped_files_are_read_from_both_layouts(tmp_path, folder, zipped):
    write(tmp_path / folder, zipped)
    data = load("fashion-mnist", tmp_path)
    x, y = data.train
    assert (x.dtype, y.dtype) == (torch.uint8, torch.int64)
    assert np.array_equal(x[:, 0].numpy(), CONTENT["train-images-idx3-ubyte"])
    assert np.array_equal(y.numpy(), CONTENT["train-labels-idx1-ubyte"])
    assert data.test[0].shape == (10, 1, 28, 28)
    assert data.classes == 10
    assert data.augment is None
    assert data.prepare(torch.zeros(1, 1, 28, 28, dtype=torch.uint8))[0, 0, 0, 0] == pytest.approx(-0.2860 / 0.3530)


IMAGES = idx(CONTENT["train-images-idx3-ubyte"])
LABELS = idx(CONTENT["train-labels-idx1-ubyte"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", IMAGES[:-1], "bytes, but its header says"),
        ("train-images-idx3-ubyte", IMAGES + b"x", "bytes, but its header says"),
        ("train-images-idx3-ubyte", IMAGES[:9], "does not start like an IDX file"),
        ("train-images-idx3-ubyte", LABELS, "does not start like an IDX file"),
        ("train-images-idx3-ubyte", b"", "does not start like an IDX file"),
        ("train-images-idx3-ubyte", struct.pack(">HBB3I", 0, 8, 3, *[2**32 - 1] * 3), "header says"),
        ("train-images-idx3-ubyte", idx(np.zeros((30, 14, 56), np.uint8)), "14x56, not 28x28"),
        ("train-labels-idx1-ubyte", idx(np.zeros(29, np.uint8)), "has 29 labels"),
        ("train-labels-idx1-ubyte", idx(np.full(30, 10, np.uint8)), "not the digits 0 to 9"),
    ],
)
def test_damaged_files_are_rejected_by_name(tmp_path, name, content, message):
    folder = write(tmp_path / "fashion-mnist", zipped=False)
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        load("fashion-mnist", tmp_path)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("content", [gzip.compress(IMAGES)[:-20], b"not gzip", gzip.compress(IMAGES)[:30] + b"?" * 99])
def test_a_damaged_gzip_file_is_rejected_by_name(tmp_path, content):
    folder = write(tmp_path / "fashion-mnist", zipped=True)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        load("fashion-mnist", tmp_path)


def test_a_missing_file_is_named_with_the_remedy(tmp_path):
    folder = write(tmp_path / "fashion-mnist", zipped=True)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match=r"t10k-labels-idx1-ubyte.gz is missing.*fedmim data fetch fashion-mnist"):
        load("fashion-mnist", tmp_path)
