"""scikit-learn's digits: 1,797 handwritten digits of 8x8 pixels, installed with the library, no download.

The first fifth in a fixed random order of each class is the test part; pixels are
normalised with the training part's own mean and deviation.
"""

from __future__ import annotations

import numpy as np
import torch

from fedmim.data.dataset import Dataset
from fedmim.data.holdout import holdout


def load_digits() -> Dataset:
    """The digits as float32 images (n, 1, 8, 8)."""
    from sklearn.datasets import load_digits as read

    bunch = read()
    x = torch.from_numpy(bunch.images.astype(np.float32))[:, None]  # (n, 1, 8, 8)
    y = torch.from_numpy(bunch.target.astype(np.int64))
    train, test = holdout(bunch.target, share=0.2)
    x = (x - x[train].mean()) / x[train].std()
    return Dataset("digits", train=(x[train], y[train]), test=(x[test], y[test]), classes=10)
