"""Makes the modules of tests/helpers importable from every test, in pytest's importlib mode."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

# One thread for each worker of pytest-xdist: more of them than cores, waiting for each other, are twenty times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
