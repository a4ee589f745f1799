"""A test part for data without one, and a validation part from the training data.

Both are stratified and do not depend on the seed of a run.
"""

from __future__ import annotations

from dataclasses import replace

from fedmim.data.descriptor import Dataset
from fedmim.data.keyed_generator import keyed_generator
from fedmim.data.lazy_arrays import Integers, np, torch
from fedmim.errors import UserError


def stratified_holdout(strata: Integers, share: float) -> tuple[Integers, Integers]:
    """Training and test indices, ascending; the test part has the fraction `share` of each stratum, rounded."""
    rng = keyed_generator("test part")
    test = [np.empty(0, dtype=np.int64)]
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        test.append(rng.permutation(members)[: round(share * len(members))])
    tested = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(strata)), tested), tested


def with_validation(data: Dataset, share: float) -> Dataset:
    """The data with this fraction of each class of the training part instead of the test part."""
    x, y = data.train
    kept, held = (torch.from_numpy(part) for part in stratified_holdout(y.cpu().numpy(), share))
    if not len(held) or not len(kept):
        raise UserError(f"validation: {share} of {len(y)} training samples leaves no training or no validation samples")
    natural = None
    if data.natural is not None:
        place = torch.full((len(y),), -1).scatter_(0, kept, torch.arange(len(kept)))  # old index -> new, -1: held out
        natural = tuple(places[places >= 0] for places in (place[part] for part in data.natural))
    return replace(data, train=(x[kept], y[kept]), test=(x[held], y[held]), natural=natural)
