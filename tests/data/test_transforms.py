"""Augmentation and normalisation do what a plain loop over images does."""

import pickle

import numpy as np
import pytest
import torch

from fedmim.data import CropFlip, Normalise


def images(count=40, channels=3, height=32, width=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(("channels", "height", "width", "padding"), [(3, 32, 32, 4), (1, 5, 9, 2), (3, 6, 4, 0)])
def test_crop_flip_equals_a_loop_over_images(channels, height, width, padding):
    x = images(40, channels, height, width)
    transform = CropFlip(padding)
    corners, mirrored = transform.draw(len(x), torch.Generator().manual_seed(5))
    expected = []
    for image, top, left, mirror in zip(x.numpy(), *corners.tolist(), mirrored.tolist(), strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        crop = padded[:, top : top + height, left : left + width]
        expected.append(crop[:, :, ::-1] if mirror else crop)
    found = transform(x, torch.Generator().manual_seed(5))
    assert found.dtype == torch.uint8
    assert np.array_equal(found.numpy(), np.stack(expected))


def test_every_offset_and_both_orientations_occur_equally_often():
    corners, mirrored = CropFlip(4).draw(81_000, torch.Generator().manual_seed(0))
    cells = torch.bincount(corners[0] * 9 + corners[1], minlength=81)
    # 1000 expected in each of 81 cells, deviation 31: five of them leave one chance in 10,000 of a false alarm.
    assert cells.min() > 1000 - 160
    assert cells.max() < 1000 + 160
    assert mirrored.unique().tolist() == [0, 1]
    assert abs(mirrored.double().mean() - 0.5) < 5 * 0.5 / 81_000**0.5


def test_crop_flip_leaves_its_input_and_the_global_generator_alone():
    x = images()
    before, state = x.clone(), torch.get_rng_state()
    CropFlip()(x, torch.Generator().manual_seed(1))
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_crop_flip_takes_images_that_are_not_contiguous():
    x = images().contiguous(memory_format=torch.channels_last)
    found = CropFlip()(x, torch.Generator().manual_seed(2))
    assert torch.equal(found, CropFlip()(x.contiguous(), torch.Generator().manual_seed(2)))


def test_normalise_is_scale_to_one_minus_mean_over_deviation():
    x = images()
    mean, std = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
    found = Normalise(mean, std)(x)
    expected = (x.double() / 255 - torch.tensor(mean).double()[:, None, None]) / torch.tensor(std).double()[
        :, None, None
    ]
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), expected, atol=1e-5)


def test_the_constants_of_images_make_them_zero_mean_and_unit_deviation():
    x = images(seed=3)
    x[:, 1] //= 3
    normalise = Normalise.of(x)
    pixels = x.numpy().astype(np.float64) / 255
    assert np.allclose(normalise.mean, pixels.mean((0, 2, 3)), atol=1e-12)
    assert np.allclose(normalise.std, pixels.std((0, 2, 3)), atol=1e-12)


def test_a_channel_that_never_varies_becomes_zero():
    x = images()
    x[:, 2] = 17
    assert Normalise.of(x)(x)[:, 2].abs().max() < 1e-6


def test_transforms_survive_pickling_and_compare_by_value():
    for transform in (CropFlip(4), Normalise((0.5,), (0.25,))):
        assert pickle.loads(pickle.dumps(transform)) == transform
