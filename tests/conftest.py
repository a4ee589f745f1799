"""Makes the modules of tests/helpers importable from every test, in pytest's importlib mode."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

# One thread for each worker of pytest-xdist: more of them than cores, waiting for each other, are twenty times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray clusters of tests listen on 127.0.0.1 alone; read when ray is imported.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
