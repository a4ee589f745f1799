"""Print pip constraints with the lowest version of each dependency that pyproject.toml allows.

torch is left out: it is installed first, in the one version that the tests run with. Flower is, too: it is pinned to
one release, which decides about its own dependencies, and about Ray's version.
"""

import re
import tomllib
from pathlib import Path

LEFT_OUT = ("torch", "flwr", "ray", "fedmim")
NOT_FOR_USERS = ("dev", "docs")  # extras


def constraints(project: dict) -> list[str]:
    """One line for each dependency of the package and of its extras for users."""
    extras = project["optional-dependencies"]
    given = [
        *project["dependencies"],
        *(each for name, all_ in extras.items() if name not in NOT_FOR_USERS for each in all_),
    ]
    pairs = [re.match(r"([\w-]+)[^>]*>=([\w.]+)", each).groups() for each in given]
    return [f"{name}=={lowest}" for name, lowest in pairs if name not in LEFT_OUT]


if __name__ == "__main__":
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    print("\n".join(constraints(tomllib.loads(text)["project"])))
