"""Any folder of images becomes a data set."""

import numpy as np
import pytest
import torch
from PIL import Image

from fedmim.data import CropFlip, load
from fedmim.errors import UserError


def save(path, level, size=(6, 5), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, level if mode == "L" else (level, 0, 255)).save(path)


def test_given_parts_are_kept_and_classes_are_numbered_by_name(tmp_path):
    for number in range(3):
        save(tmp_path / "train" / "dog" / f"{number}.png", 10 + number)
        save(tmp_path / "train" / "cat" / "deep" / f"{number}.PNG", 20 + number)
    save(tmp_path / "train" / "emu" / "0.png", 30)
    save(tmp_path / "val" / "dog" / "0.png", 40)
    (tmp_path / "train" / "dog" / "notes.txt").write_text("not an image")
    data = load(f"folder:{tmp_path}")
    x, y = data.train
    assert x.shape == (7, 3, 5, 6)
    assert x[:, 0, 0, 0].tolist() == [20, 21, 22, 10, 11, 12, 30]
    assert y.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert data.test[0][:, 0, 0, 0].tolist() == [40]
    assert data.test[1].tolist() == [1]
    assert data.classes == 3
    assert data.augment == CropFlip(4)


def test_normalisation_is_that_of_the_training_part(tmp_path):
    for number in range(4):
        save(tmp_path / "train" / "a" / f"{number}.png", 50 * number)
    save(tmp_path / "test" / "a" / "0.png", 255)
    data = load(f"folder:{tmp_path}")
    prepared = data.prepare(data.train[0])
    assert prepared.dtype == torch.float32
    assert abs(prepared[:, 0].mean()) < 1e-6
    assert abs(prepared[:, 0].std(correction=0) - 1) < 1e-5


def test_without_parts_a_fixed_fifth_of_each_class_is_the_test_part(tmp_path):
    for label, name in enumerate("ab"):
        for number in range(10):
            save(tmp_path / name / f"{number}.png", 100 * label + number)
    first, again = load(f"folder:{tmp_path}"), load(f"folder:{tmp_path}")
    assert first.train[1].tolist() == [0] * 8 + [1] * 8
    assert first.test[1].tolist() == [0, 0, 1, 1]
    assert torch.equal(first.test[0], again.test[0])
    levels = torch.cat([first.train[0], first.test[0]])[:, 0, 0, 0]
    assert sorted(levels.tolist()) == [*range(10), *range(100, 110)]


def test_grey_images_become_rgb(tmp_path):
    for number in range(5):
        save(tmp_path / "a" / f"{number}.png", 9, mode="L")
    assert (load(f"folder:{tmp_path}").train[0] == 9).all()


def test_images_of_different_size_are_rejected_by_name_unless_resized(tmp_path):
    for number in range(9):
        save(tmp_path / "a" / f"{number}.png", 9)
    save(tmp_path / "a" / "9.png", 9, size=(8, 5))
    with pytest.raises(UserError, match=r"9\.png is 8x5 but .*\.png is 6x5.*--image-size"):
        load(f"folder:{tmp_path}")
    data = load(f"folder:{tmp_path}", image_size=4)
    assert data.train[0].shape == (8, 3, 4, 4)


def test_resizing_is_bilinear(tmp_path):
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    for number in range(5):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "a" / f"{number}.png")
    found = load(f"folder:{tmp_path}", image_size=2).train[0][0]
    # Pillow's bilinear filter widens when it shrinks: weights 3, 3, 1 over the nearest three of four, out of 7.
    weights = np.array([[3, 3, 1, 0], [0, 1, 3, 3]]) / 7
    expected = np.einsum("ij,kl,jlc->cik", weights, weights, pixels.astype(float))
    assert np.abs(found.numpy() - expected).max() <= 1


def make_unreadable(path):
    save(path / "a" / "0.png", 0)
    (path / "a" / "1.png").write_bytes(b"no image")


def make_train_without_test(path):
    save(path / "train" / "a" / "0.png", 0)


def make_unknown_class(path):
    save(path / "train" / "a" / "0.png", 0)
    save(path / "test" / "b" / "0.png", 0)


def make_empty_class(path):
    save(path / "a" / "0.png", 0)
    (path / "b").mkdir()


def make_too_few(path):
    save(path / "a" / "0.png", 0)
    save(path / "a" / "1.png", 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_unreadable, r"1\.png cannot be read as an image"),
        (make_train_without_test, "neither test nor val"),
        (make_unknown_class, "has no such class"),
        (make_empty_class, "b has no images"),
        (make_too_few, "too few images to hold out a test part"),
        (lambda path: None, "has no sub-folders"),
    ],
)
def test_folders_that_cannot_be_used_say_why(tmp_path, make, message):
    make(tmp_path)
    if make is make_unreadable:
        for number in range(2, 9):
            save(tmp_path / "a" / f"{number}.png", 0)
    with pytest.raises(UserError, match=message):
        load(f"folder:{tmp_path}")


def test_an_impossible_image_size_is_rejected(tmp_path):
    with pytest.raises(UserError, match="image_size: must be at least 1"):
        load(f"folder:{tmp_path}", image_size=0)
