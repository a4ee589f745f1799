"""The test part of data that comes without one: stratified, and the same whatever the seed of the run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmim.data.keyed import generator


def holdout(strata: NDArray[np.int64], share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test indices, ascending: `share` of each stratum (rounded) goes to the test part."""
    rng = generator("test part")
    test = [np.empty(0, dtype=np.int64)]
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        test.append(rng.permutation(members)[: round(share * len(members))])
    tested = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(strata)), tested), tested
