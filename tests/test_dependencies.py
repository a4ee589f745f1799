"""Dependencies have a lowest and a highest version, and the lowest are those that the tests run with."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
GIVEN = [
    *PROJECT["dependencies"],
    *(line for name in ("pandas", "privacy", "tensorboard", "tune") for line in EXTRAS[name]),
]


@pytest.mark.parametrize("line", [*GIVEN, *EXTRAS["docs"], *EXTRAS["flower"], *EXTRAS["ray"]])
def test_a_dependency_has_a_lowest_and_a_highest_version(line):
    assert re.fullmatch(r"[a-z0-9-]+(\[[a-z]+\])?>=\d+(\.\w+)*,<\d+(\.\d+)*", line)


def test_the_constraints_are_the_lowest_version_of_each_but_torch():
    lines = runpy.run_path(str(ROOT / ".ci" / "lowest.py"))["constraints"](PROJECT)
    pairs = [line.split("==") for line in lines]
    assert {"torch", *(name for name, _ in pairs)} == {re.split(r"[\[>]", line)[0] for line in GIVEN}
    assert all(any(line.startswith(f"{name}>={version},") for line in GIVEN) for name, version in pairs)
