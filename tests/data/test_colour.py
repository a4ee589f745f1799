"""Colour shift by client: brightness and saturation, by hand on single pixels."""

import pytest
import torch

from fedmim.data import ColourShift
from fedmim.errors import UserError


def pixel(*channels):
    return torch.tensor(channels, dtype=torch.uint8)[None, :, None, None]


def shifted_by_hand(channels, brightness, saturation):
    grey = 0.299 * channels[0] + 0.587 * channels[1] + 0.114 * channels[2]
    values = [brightness * (grey + saturation * (value - grey)) for value in channels]
    return [min(255, max(0, round(value))) for value in values]


def test_pixels_shift_as_the_formula_says_and_stay_in_range():
    shift = ColourShift(strength=0.8, seed=3)
    for client in range(20):
        for channels in [(200, 40, 90), (255, 255, 255), (0, 0, 0), (255, 0, 0), (3, 250, 128)]:
            found = shift(pixel(*channels), client)
            assert found.dtype == torch.uint8
            assert found.flatten().tolist() == shifted_by_hand(channels, *shift.factors(client))


def test_grey_images_change_in_brightness_only():
    shift = ColourShift(strength=0.5, seed=0)
    brightness, _ = shift.factors(4)
    assert shift(pixel(100), 4).item() == round(100 * brightness)


def test_factors_fill_the_interval_around_one():
    factors = torch.tensor([ColourShift(0.5, seed=1).factors(client) for client in range(2000)])
    assert factors.min() >= 0.5
    assert factors.max() <= 1.5
    # U[0.5, 1.5] has mean 1 and deviation 0.289; over 2000 clients the mean has 0.0065.
    assert ((factors.mean(0) - 1).abs() < 5 * 0.0065).all()
    assert ((factors.std(0) - 0.289).abs() < 0.02).all()


def test_factors_depend_on_seed_and_client_alone():
    assert ColourShift(0.5, seed=1).factors(7) == ColourShift(0.5, seed=1).factors(7)
    assert ColourShift(0.5, seed=1).factors(7) != ColourShift(0.5, seed=2).factors(7)
    assert ColourShift(0.5, seed=1).factors(7) != ColourShift(0.5, seed=1).factors(8)


def test_strength_zero_changes_nothing():
    x = pixel(1, 2, 3)
    assert ColourShift(0, seed=1)(x, 0) is x


@pytest.mark.parametrize("strength", [-0.1, 1.5, float("nan")])
def test_an_impossible_strength_is_rejected(strength):
    with pytest.raises(UserError, match="strength"):
        ColourShift(strength)
