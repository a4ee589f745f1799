"""`fedmim flower new DIR`: create a Flower app. This needs neither Flower nor torch."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedmim.errors import UserError

HELP = """\
usage: fedmim flower new DIR

Write a Flower app to DIR: a server and a client for all methods, and a pyproject.toml with the settings of a run.
Replace task_for_partition in fedmim_app/task.py with your own model and data.
"""
NEXT = """\
{folder}/: pyproject.toml (settings), fedmim_app/task.py (model and data), server_app.py, client_app.py

To run it on this machine:

  pip install 'fedmim[flower]'
  flwr run {folder} local --stream --federation-config "num-supernodes=10"

For several machines, see fedmim's docs/deploy.md and https://flower.ai/docs.
"""


def command(argv: list[str]) -> None:
    """Run `fedmim flower`."""
    if "-h" in argv or "--help" in argv:
        print(HELP, end="")
    elif len(argv) == 2 and argv[0] == "new":
        copy_template(Path(argv[1]))
        print(NEXT.format(folder=argv[1]), end="")
    else:
        raise UserError("flower: usage: fedmim flower new DIR")


def copy_template(folder: Path) -> None:
    """Copy the example app to a new or empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: already exists; name a new or empty folder")
    shutil.copytree(template(), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def template() -> Path:
    """The folder with the app's files: next to this file in an installed package, in examples/ in a checkout."""
    inside = Path(__file__).parent / "template"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "examples" / "flower-app"
