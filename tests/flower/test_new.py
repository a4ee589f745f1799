"""`fedmim flower new DIR`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedmim.cli import main
from fedmim.flower.new import template


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"}


def test_the_example_is_copied_whole(tmp_path, capsys):
    assert main(["flower", "new", str(tmp_path / "mine")]) == 0
    assert files(tmp_path / "mine") == files(template())
    assert {Path("pyproject.toml"), Path("fedmim_app/server_app.py")} <= files(template()).keys()
    assert f"flwr run {tmp_path / 'mine'}" in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["flower", "new", str(tmp_path)]) == 2
    assert "already exists; name a new or empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "words", [["flower"], ["flower", "new"], ["flower", "old", "x"], ["flower", "check"], ["flower", "check", "x", "y"]]
)
def test_a_wrong_word_is_told_the_right_ones(words, capsys):
    assert main(words) == 2
    assert "fedmim flower new DIR" in capsys.readouterr().err


def test_a_new_app_needs_neither_flower_nor_torch(tmp_path):
    program = (
        "import sys; sys.modules['flwr'] = sys.modules['torch'] = None\n"
        f"from fedmim.cli import main; assert main(['flower', 'new', {str(tmp_path / 'app')!r}]) == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_without_flower_the_import_says_what_to_install():
    program = "import sys; sys.modules['flwr'] = None\nfrom fedmim.flower import FlowerStrategy"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "pip install 'fedmim[flower]'" in done.stderr.splitlines()[-1]


def test_the_wheel_carries_the_template():
    root = Path(__file__).parents[2]
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["force-include"] == {"examples/flower-app": "fedmim/flower/template"}
    assert template() == root / "examples" / "flower-app"
