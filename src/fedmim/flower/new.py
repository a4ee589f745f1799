"""`fedmim flower new DIR`: a Flower app to start from. It needs neither Flower nor torch."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedmim.errors import UserError

HELP = """\
usage: fedmim flower new DIR

Write a Flower app to DIR: a server and a client for every method, and pyproject.toml with a run's settings. Replace
task_for_partition in fedmim_app/task.py by your own model and data.
"""
NEXT = """\
{folder}/: pyproject.toml (settings), fedmim_app/task.py (model and data), server_app.py, client_app.py

  pip install 'fedmim[flower]'
  flwr run {folder} local --stream --federation-config "num-supernodes=10"

runs it on this machine. On machines of your own: https://flower.ai/docs, and docs/deploy.md of fedmim.
"""


def command(argv: list[str]) -> None:
    """The command line's part."""
    if "-h" in argv or "--help" in argv:
        print(HELP, end="")
    elif len(argv) == 2 and argv[0] == "new":
        copy_template(Path(argv[1]))
        print(NEXT.format(folder=argv[1]), end="")
    else:
        raise UserError("flower: write `fedmim flower new DIR`")


def copy_template(folder: Path) -> None:
    """Copy the example app to a new or empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: it is there already; name a new folder")
    shutil.copytree(template(), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def template() -> Path:
    """The app's files: beside this one in an installed package, in examples/ in a checkout."""
    inside = Path(__file__).parent / "template"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "examples" / "flower-app"
