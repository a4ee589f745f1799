"""Every notebook of docs/tutorials runs, and its stored outputs are those of the run (`make tutorials` stores them)."""

from __future__ import annotations

import re
import runpy
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
pytestmark = [
    pytest.mark.skipif(not TUTORIALS, reason="not in the source distribution"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Jupyter's own packages
]
nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook, *, numbers=True):
    """The text outputs of each cell, without images; without `numbers`, their shape alone."""
    found = []
    for cell in code_cells(notebook):
        shown = [each.get("text") or each.get("data", {}).get("text/plain", "") for each in cell.outputs]
        text = "\n".join(shown)
        found.append(text if numbers else re.sub(r"[\s-]+", " ", re.sub(r"\d+(\.\d+)?", "#", text)))
    return found


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_its_stored_outputs_are_those_of_the_run(path):
    stored = nbformat.read(path, as_version=4)
    new = runpy.run_path(str(ROOT / ".ci" / "tutorials.py"))["execute"](path)
    alike = stored.metadata["rounding"] == new.metadata["rounding"]  # else the numbers depend on the kind of CPU
    assert texts(stored, numbers=alike) == texts(new, numbers=alike)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_stored_tutorial_was_run_in_order_without_errors_and_names_no_machine(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert all(each.output_type != "error" and each.get("name") != "stderr" for each in outputs)
    assert not re.search(r"(?<![\w.])/(home|tmp|work|root|usr)/", "\n".join(texts(nbformat.read(path, as_version=4))))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_picture_of_a_tutorial_has_a_text_of_its_own(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    drawn = [cell for cell in cells if any("image/png" in each.get("data", {}) for each in cell.outputs)]
    assert len({cell.metadata.get("alt", "") for cell in drawn} - {""}) == len(drawn)


def test_the_tutorials_are_linked_one_to_the_next():
    for path, following in pairwise(TUTORIALS):
        assert f"({following.name})" in nbformat.read(path, as_version=4).cells[-1].source
