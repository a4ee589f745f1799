"""docs/guarantees.md names a test for each promise, and the tests are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = [
    line
    for line in (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| promise")
]


def test_every_promise_names_what_holds_it_and_that_exists():
    assert len(ROWS) > 15
    for row in ROWS:
        held_by = re.findall(r"`([^`]+)`", row.split("|")[2])
        assert held_by, row
        paths = [each for each in held_by if each.startswith("tests/")]
        assert paths or any(each.startswith(("python -m benchmarks ", "make ")) for each in held_by), row
        for path in paths:
            assert (ROOT / path).exists(), path
