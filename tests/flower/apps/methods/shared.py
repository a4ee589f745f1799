"""What server and clients of the simulation share: all methods, and each way to keep past models."""

from dataclasses import replace

import torch
from every_method import EVERY_METHOD
from problems import BUSY, classification

import fedmim

TASK = classification(dtype=torch.float32)
SETTINGS = fedmim.Settings(**BUSY | {"rounds": 4})
CASES = {
    **{name: (algorithm, SETTINGS) for name, algorithm in EVERY_METHOD.items()},
    "fedmim, catch-up": (fedmim.FedMIM(), replace(SETTINGS, history="catch-up")),
    "fedmim, broadcast": (fedmim.FedMIM(), replace(SETTINGS, history="broadcast")),
}
