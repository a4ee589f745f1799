"""What server and clients of the deployment share. Clients fail by plan; a marker is a file that others wait for."""

import time
from pathlib import Path

import torch
from problems import BUSY, classification

import fedmim

CLIENTS = 3
TASK = classification(sizes=(9, 5, 12), dtype=torch.float32)
ALGORITHM = fedmim.Scaffold()
SETTINGS = fedmim.Settings(**BUSY | {"rounds": 5, "participation": 1.0})

# Whose replies count in each round: in the second client 0 raises and client 1 replies NaN, in the third client 1's
# SuperNode is killed and client 2 lags, in the fourth all are back, in the fifth all raise.
COUNTED = {1: (0, 1, 2), 2: (2,), 3: (0,), 4: (0, 1, 2)}


def mark(context, name):
    """Tell the others."""
    (Path(str(context.run_config["markers"])) / name).touch()


def await_mark(context, name):
    """Wait to be told."""
    path, end = Path(str(context.run_config["markers"])) / name, time.monotonic() + 180
    while not path.exists():
        assert time.monotonic() < end, name
        time.sleep(0.1)
