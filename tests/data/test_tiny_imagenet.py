"""Tiny ImageNet's folders are decoded once; its cache is used, rebuilt when it does not fit, and never required."""

from pathlib import Path

import numpy as np
import pytest
import small_tiny_imagenet
import torch
from small_tiny_imagenet import save

from fedmim.data import known, load, tiny_imagenet
from fedmim.errors import UserError


@pytest.fixture
def folder(tmp_path):
    return small_tiny_imagenet.write(tmp_path)


def count_decoding(monkeypatch):
    calls = []
    real = tiny_imagenet.decode_images
    monkeypatch.setattr(tiny_imagenet, "decode_images", lambda *arguments: calls.append(1) or real(*arguments))
    return calls


def test_images_and_labels_follow_wnids(folder):
    data = load("tiny-imagenet:3", folder.parent)
    x, y = data.train
    assert x.shape == (12, 3, 64, 64)
    assert x.dtype == torch.uint8
    assert y.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.test[1].tolist() == [0, 0, 1, 1, 2, 2]
    assert data.classes == 3
    expected = torch.tensor([60 * label + 10 * number for label in range(3) for number in range(4)])
    assert (x.double().mean((1, 2, 3)) - expected).abs().max() <= 1


def test_grey_images_become_rgb(folder):
    save(folder / "train" / "n02" / "images" / "n02_0.JPEG", 77, mode="L")
    x, _ = load("tiny-imagenet:3", folder.parent).train
    assert (x[0] - 77 == 0).all()


def test_the_second_time_nothing_is_decoded(folder, monkeypatch):
    first = load("tiny-imagenet:3", folder.parent)
    calls = count_decoding(monkeypatch)
    second = load("tiny-imagenet:3", folder.parent)
    assert not calls
    assert torch.equal(first.train[0], second.train[0])
    assert torch.equal(first.test[0], second.test[0])


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty])
def test_a_damaged_cache_is_rebuilt(folder, monkeypatch, damage):
    first = load("tiny-imagenet:3", folder.parent)
    damage(folder / tiny_imagenet.cache_name(3))
    calls = count_decoding(monkeypatch)
    assert torch.equal(load("tiny-imagenet:3", folder.parent).train[0], first.train[0])
    assert calls
    calls.clear()
    load("tiny-imagenet:3", folder.parent)
    assert not calls


def test_a_stale_cache_is_rebuilt(folder):
    load("tiny-imagenet:3", folder.parent)
    save(folder / "train" / "n02" / "images" / "n02_0.JPEG", 200)
    x, _ = load("tiny-imagenet:3", folder.parent).train
    assert abs(x[0].double().mean() - 200) <= 1


def test_a_cache_that_cannot_be_written_costs_a_warning_and_leaves_nothing(folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.warns(UserWarning, match="No space left"):
        assert len(load("tiny-imagenet:3", folder.parent).train[0]) == 12
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_damaged_image_is_named(folder):
    bad = folder / "train" / "n01" / "images" / "n01_2.JPEG"
    bad.write_bytes(bad.read_bytes()[:200])
    with pytest.raises(UserError, match=r"n01_2\.JPEG cannot be read"):
        load("tiny-imagenet:3", folder.parent)
    assert not (folder / tiny_imagenet.cache_name(3)).exists()


def test_an_image_of_another_size_is_named(folder):
    save(folder / "val" / "images" / "val_10.JPEG", 5, size=(32, 64))
    with pytest.raises(UserError, match=r"val_10\.JPEG is 32x64"):
        load("tiny-imagenet:3", folder.parent)


def test_fewer_classes_are_the_first_of_the_list_and_keep_a_cache_of_their_own(folder, monkeypatch):
    whole = load("tiny-imagenet:3", folder.parent)
    part = load("tiny-imagenet:2", folder.parent)
    assert part.classes == 2
    assert torch.equal(part.train[0], whole.train[0][:8])
    assert part.train[1].tolist() == [0] * 4 + [1] * 4
    assert torch.equal(part.test[0], whole.test[0][:4])
    assert part.test[1].tolist() == [0, 0, 1, 1]
    calls = count_decoding(monkeypatch)
    assert torch.equal(load("tiny-imagenet:3", folder.parent).train[0], whole.train[0])
    assert not calls


@pytest.mark.parametrize(("name", "asked"), [("tiny-imagenet", 200), ("tiny-imagenet:4", 4)])
def test_an_excerpt_is_not_taken_for_more_than_it_is(folder, name, asked):
    with pytest.raises(UserError, match=rf"has 3 of {asked} classes; use --data tiny-imagenet:3 for these only"):
        load(name, folder.parent)
    (listed,) = [entry for entry in known(folder.parent) if entry.name == "tiny-imagenet"]
    assert listed.found is None
    assert "3 of 200 classes" in listed.problem


@pytest.mark.parametrize("number", ["0", "1", "201", "-3", "three", "2.5"])
def test_a_wrong_number_of_classes_is_rejected(folder, number):
    with pytest.raises(UserError, match=rf"2 to 200, got {number}$"):
        load(f"tiny-imagenet:{number}", folder.parent)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("wnids.txt", "n02\nn77\nn01\n", "train/n77/images has no .JPEG files"),
        ("wnids.txt", "", "lists no classes"),
        ("val/val_annotations.txt", "", "has no image"),
        ("val/val_annotations.txt", "val_55.JPEG\tn01\t0\n", "val_55.JPEG is missing"),
    ],
)
def test_incomplete_folders_say_what_is_missing(folder, file, content, message):
    (folder / file).write_text(content)
    with pytest.raises(UserError, match=message):
        load("tiny-imagenet:3", folder.parent)


def test_a_long_decoding_shows_progress_and_gives_the_same(folder, monkeypatch, capsys):
    monkeypatch.setattr("fedmim.data.progress_bar.LONG", 1)
    x, _ = load("tiny-imagenet:3", folder.parent).train
    assert np.isclose(x[1].double().mean(), 10, atol=1)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("val/val_annotations.txt", "val_00", "\0al_00"),
        ("val/val_annotations.txt", "val_00", "../val_00"),
        ("val/val_annotations.txt", "val_00", "/val_00"),
        ("wnids.txt", "n02", ".."),
        ("wnids.txt", "n02", "a/b"),
        ("wnids.txt", "n02", "n\0"),
    ],
)
def test_a_name_that_leads_out_of_the_folder_is_rejected(tmp_path, file, old, new):
    folder = small_tiny_imagenet.write(tmp_path)
    (folder / file).write_text((folder / file).read_text().replace(old, new))
    with pytest.raises(UserError, match=rf"{file} lists .*, which is not a file name"):
        load("tiny-imagenet:3", tmp_path)
