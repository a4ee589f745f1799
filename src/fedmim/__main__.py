"""`python -m fedmim` is the command `fedmim`."""

import sys

from fedmim.cli import main

sys.exit(main())
