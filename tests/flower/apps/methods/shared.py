"""What server and clients of the simulation share: all methods on one small problem."""

import torch
from every_method import EVERY_METHOD
from problems import BUSY, classification

import fedmim

TASK = classification(dtype=torch.float32)
SETTINGS = fedmim.Settings(**BUSY | {"rounds": 4})
METHODS = {
    **EVERY_METHOD,
    "fedmim catch-up": fedmim.FedMIM(history="catch-up"),
    "fedmim broadcast": fedmim.FedMIM(history="broadcast"),
}
