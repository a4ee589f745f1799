"""scikit-learn's digits: 1,797 handwritten digits of 8x8 pixels, installed with the library, no download.

The first fifth in a fixed random order of each class is the test part; pixels are normalised with the training part's
own mean and deviation.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from fedmim.data.dataset import Dataset
from fedmim.data.holdout import holdout
from fedmim.errors import UserError


def load_digits() -> Dataset:
    """The digits as float32 images (n, 1, 8, 8)."""
    # The file alone: importing scikit-learn takes longer than training for a few rounds.
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise UserError("digits: scikit-learn is not installed; pip install scikit-learn")
    table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    x = torch.from_numpy(table[:, :-1].astype(np.float32)).view(-1, 1, 8, 8)
    y = torch.from_numpy(table[:, -1].astype(np.int64))
    train, test = holdout(y.numpy(), share=0.2)
    x = (x - x[train].mean()) / x[train].std()
    return Dataset("digits", train=(x[train], y[train]), test=(x[test], y[test]), classes=10)
