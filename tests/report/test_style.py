"""Colours: told apart by colour-blind readers, and seen on white and on dark paper."""

from itertools import combinations

import numpy as np
import pytest

from fedmim.report.style import COLOURS, OTHERS, colour_of, shade, styles

# What readers without one kind of cones see of linear RGB: Machado, Oliveira and Fernandes (2009), at full severity.
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def linear(colour):
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b*, in which distances are differences that one sees; about 2 is the least."""
    ratios = TO_XYZ @ rgb / WHITE
    f = np.where(ratios > 0.008856, np.cbrt(ratios), 7.787 * ratios + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one, other):
    """As the Web Content Accessibility Guidelines define it."""
    low, high = sorted(TO_XYZ[1] @ linear(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("kind", BLINDNESS)
def test_no_two_methods_look_alike_to_any_reader(kind):
    seen = {name: lab(np.clip(BLINDNESS[kind] @ linear(colour), 0, 1)) for name, colour in COLOURS.items()}
    distances = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(seen, 2)}
    closest = min(distances, key=distances.get)
    assert distances[closest] > 15, closest


@pytest.mark.parametrize("paper", ["#ffffff", "#14171b"])
def test_every_colour_shows_on_both_papers(paper):
    assert min(contrast(colour, paper) for colour in (*COLOURS.values(), *OTHERS)) > 2.2


def test_variants_keep_the_hue_of_their_method_and_all_differ():
    looks = styles(["fedavg", *["fedmim"] * 12, "fedavg"])
    assert looks[1].colour == COLOURS["fedmim"]
    assert {(look.colour, look.dash) for look in looks} >= {(COLOURS["fedavg"], "-")}
    assert len({(look.colour, look.dash) for look in looks}) == 14
    assert all(look.strong == (1 <= number <= 12) for number, look in enumerate(looks))


def test_a_shade_lies_between_the_colour_and_white_or_black():
    assert shade("#204060", 0.5) == "#90a0b0"
    assert shade("#204060", -0.5) == "#102030"
    assert shade("#204060", 0.0) == "#204060"


def test_a_users_own_method_has_the_same_colour_from_wherever_it_is_loaded():
    assert styles(["/a/own.py:Mine"]) == styles(["/b/other.py:Mine"])


def test_every_built_in_method_has_its_own_colour_and_variants_differ_in_dashes():
    assert len(set(COLOURS.values())) == len(COLOURS) == 9
    assert colour_of("own.py:Mine") == colour_of("own.py:Mine")
    variants = styles(["fedmim"] * 12)
    assert variants[0].colour == COLOURS["fedmim"]
    assert len({(style.colour, style.dash) for style in variants}) == 12


def test_references_are_grey_and_never_solid():
    pool, alone, sharp, other = styles(["centralised", "local", "centralised+sharp", "fedavg"])
    assert (pool.colour, pool.dash, alone.colour, alone.dash) == ("#999999", "--", "#999999", ":")
    assert (sharp.dash, sharp.colour != pool.colour) == ("--", True)
    assert other.dash == "-"
