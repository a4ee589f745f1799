"""`fedmim flower new DIR` creates a Flower app, without Flower and torch. `fedmim flower check DIR` checks it."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedmim.errors import UserError

HELP = """\
usage: fedmim flower new DIR
       fedmim flower check DIR [--run-config "NAME=VALUE ..."]

new    Write a Flower app to DIR: a server and a client for all methods, and a pyproject.toml with the settings of a
       run. Replace task_for_partition in fedmim_app/task.py with your own model and data.
check  Check the settings in pyproject.toml and in --run-config, which takes the same text as that of flwr run. This
       runs the app's own check on this machine, without a federation.
"""
_USAGE = 'fedmim flower new DIR, or fedmim flower check DIR [--run-config "NAME=VALUE ..."]'
NEXT = """\
{folder}/: pyproject.toml (settings), fedmim_app/task.py (model and data), server_app.py, client_app.py

To run it on this machine:

  pip install 'fedmim[flower]'
  fedmim flower check {folder}
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
    elif argv[:1] == ["check"] and (words := _words(argv[1:])):
        folder, *overrides = words
        print(_check(Path(folder), overrides))
    else:
        raise UserError(f"flower: usage: {_USAGE}")


def _words(argv: list[str]) -> list[str]:
    """The folder and the texts after --run-config or -c; nothing if the words are others."""
    folder, rest = argv[:1], argv[1:]
    values = rest[1::2]
    named = len(rest) == 2 * len(values) and all(flag in ("--run-config", "-c") for flag in rest[::2])
    return [*folder, *values] if folder and named and not folder[0].startswith("-") else []


def _check(folder: Path, overrides: list[str]) -> str:
    try:
        from fedmim.flower.check import check_app

        return check_app(folder, overrides)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "flwr":
            raise
        raise UserError("check: Flower is not installed; pip install 'fedmim[flower]'") from error


def copy_template(folder: Path) -> None:
    """Copy the example app to a new or empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: already exists; name a new or empty folder")
    shutil.copytree(template(), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def template() -> Path:
    """The folder with the app's files: next to this file in an installed package, in examples/ in a checkout."""
    inside = Path(__file__).parent / "template"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "examples" / "flower-app"
