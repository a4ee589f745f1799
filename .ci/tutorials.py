"""Executes the notebooks of docs/tutorials and stores them with their outputs: `make tutorials`.

`python .ci/tutorials.py` executes all of them, `python .ci/tutorials.py 03-own-method` one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
# Kernels round as on a CPU without AVX-512, train with one thread, and write a data set that they generate to their own
# folder.
ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1", "FEDMIM_DATA": "data", "MPLBACKEND": "inline"
}  # fmt: skip
# Kinds of CPU still differ in rounding. This cell, which is not stored, shows whether two runs round alike.
ROUNDING = """
import zlib
import fedmim
_run = fedmim.simulate(
    fedmim.FedAvg(), fedmim.Task.named(clients=10), fedmim.Settings(rounds=3), fedmim.Execution(engine="serial"),
    progress=False,
)
print(zlib.crc32(_run.params.numpy().tobytes()))
"""


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a new run, in an empty folder, in a kernel of its own."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(ROUNDING))
    with tempfile.TemporaryDirectory(prefix="fedmim-") as folder:
        client = NotebookClient(
            notebook, timeout=300, kernel_name="python3", record_timing=False, coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )  # fmt: skip
        client.execute(env=os.environ | ENVIRONMENT)
    rounding = notebook.cells.pop().outputs[0].text.strip()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "rounding": rounding,
    }
    return notebook


def main(names: list[str]) -> None:
    """Execute and store these notebooks; without names, all."""
    for path in [TUTORIALS / f"{name}.ipynb" for name in names] or sorted(TUTORIALS.glob("*.ipynb")):
        notebook = execute(path)
        nbformat.write(notebook, path)
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
