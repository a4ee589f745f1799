"""Makes the modules of tests/helpers importable from every test, in pytest's importlib mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
