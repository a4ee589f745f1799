"""Numbers and names as people read them."""

import pytest

from fedmim.results.number_formats import listed


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1"),
        (3, "1, 2 and 3"),
        (10, "1, 2, 3, 4, 5, 6, 7, 8, 9 and 10"),
        (11, "1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"),
        (10_000, "1, 2, 3, 4, 5, 6, 7, 8, 9 and 9991 more"),
    ],
)
def test_names_are_listed_up_to_ten(count, text):
    assert listed([str(number) for number in range(1, count + 1)]) == text
