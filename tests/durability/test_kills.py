"""Commands that are killed or refused a write end, once resumed, as if nothing had happened: a handful of instants.

`python -m benchmarks kills` tries hundreds, with all engines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="not in the source distribution")


@pytest.mark.parametrize(("instants", "faults"), [(8, 0), (0, 16)], ids=["kills", "refused writes"])
def test_commands_resume_to_the_same_bits(instants, faults):
    """In a process of its own, which forks and therefore must not have threads."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    words = ["--instants", str(instants), "--faults", str(faults), "--engines", "serial"]
    command = [sys.executable, "-m", "benchmarks.kills", *words]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = re.search(r"(\d+) trials, resumed (\d+) times; 0 did not end", done.stdout)
    assert summary, done.stdout
    trials, resumes = map(int, summary.groups())
    assert trials == instants + faults
    assert resumes > 0
