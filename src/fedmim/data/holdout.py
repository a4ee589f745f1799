"""A test part for data without one, and a validation part from the training data.

Both are stratified and do not depend on the seed of a run.
"""

from __future__ import annotations

from dataclasses import replace

from fedmim.data.descriptor import Dataset
from fedmim.data.keyed_generator import keyed_generator
from fedmim.data.lazy_arrays import Integers, Tensor, np, torch
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
    """The data with this fraction of each class of the training part instead of the test part.

    A natural client that would lose all of its samples keeps the first.
    """
    x, y = data.train
    is_held = torch.zeros(len(y), dtype=torch.bool)
    is_held[torch.from_numpy(stratified_holdout(y.cpu().numpy(), share)[1])] = True
    for own in data.natural or ():
        is_held[own[:1]] &= not is_held[own].all()
    kept, held = (part.nonzero().flatten() for part in (~is_held, is_held))
    if not len(held) or not len(kept):
        raise UserError(f"validation: {share} of {len(y)} training samples leaves no training or no validation samples")
    natural, tests = (None if data.natural is None else _renumbered(data.natural, part) for part in (kept, held))
    return replace(data, train=(x[kept], y[kept]), test=(x[held], y[held]), natural=natural, client_tests=tests)


def _renumbered(natural: tuple[Tensor, ...], part: Tensor) -> tuple[Tensor, ...]:
    """Which samples of `part` each natural client has."""
    samples = sum(len(own) for own in natural)
    place = torch.full((samples,), -1).scatter_(0, part, torch.arange(len(part)))  # old index -> new, -1: not in it
    return tuple(places[places >= 0] for places in (place[own] for own in natural))
