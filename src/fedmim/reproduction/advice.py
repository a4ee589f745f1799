"""Which method to use in a setting: the evidence of the nearest settings, and the method that does best there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedmim.errors import UserError
from fedmim.experiments.methods import make_method
from fedmim.reproduction.evidence import Evidence

NEAREST = 3  # settings to look at
TESTED = 100  # clients in every experiment
ONE_SEED = 1.0  # the deviation over seeds, in points, where there is one seed: about the median of the other results
EVEN = 30.0  # the concentration of a Dirichlet split that counts as IID


@dataclass(frozen=True)
class Wanted:
    """A federation, and what its clients can do."""

    participation: float
    split: str
    steps: int
    clients: int = TESTED
    stateless: bool = False  # clients keep nothing between rounds
    gradients: int = 2  # at most this many gradients per local step
    vectors: int = 9  # at most this many vectors of the model's size per client and round, down and up together


@dataclass(frozen=True)
class MethodAdvice:
    """The nearest settings with their results, and the methods that are in all of them."""

    settings: tuple[tuple[float, tuple[Evidence, ...]], ...]  # distance and results, the nearest and the best first
    gaps: dict[str, float]  # points behind the best of each setting, on average, near settings with more weight
    level: tuple[str, ...]  # the method with the smallest gap, and those that the seeds do not separate from it
    method: str  # the one to use: of these, the one with the lowest costs

    def of(self, method: str) -> Evidence:
        """The result of a method in the nearest setting."""
        return next(each for each in self.settings[0][1] if each.method == method)


@dataclass(frozen=True)
class MethodCosts:
    """What a method costs."""

    gradients: int  # per local step
    vectors: int  # the size of a model, down and up together, per client and round
    state: int  # vectors that a client keeps


def costs_of(method: str) -> MethodCosts:
    """The costs of a method with its default hyper-parameters."""
    from fedmim.simulation.wire import Wire

    algorithm, _ = make_method(method, {}, method)
    wire = Wire.of_vectors(algorithm)
    return MethodCosts(algorithm.gradients, len(wire.down) + len(wire.upload), len(wire.slots))


def advise(wanted: Wanted, evidence: Sequence[Evidence]) -> MethodAdvice:
    """The advice for a federation: only methods that its clients can run."""
    costs = {method: costs_of(method) for method in {each.method for each in evidence}}
    fit = {
        method
        for method, cost in costs.items()
        if cost.gradients <= wanted.gradients
        and cost.vectors <= wanted.vectors
        and not (wanted.stateless and cost.state)
    }
    groups: dict[tuple[str, str, float, int], list[Evidence]] = {}
    for each in evidence:
        if each.method in fit:
            groups.setdefault(each.setting, []).append(each)
    if not groups:
        raise UserError("vectors: no method needs so few; FedAvg needs 2, one model down and one up")
    groups = {setting: own for setting, own in groups.items() if len(own) > 1} or groups  # one alone compares nothing
    near = sorted(groups, key=lambda setting: setting_distance(wanted, setting))[:NEAREST]
    settings = [(setting_distance(wanted, setting), _best_first(groups[setting])) for setting in near]
    gaps = _gaps(settings)
    best = next(iter(gaps))
    level = tuple(method for method in gaps if method == best or _level(best, method, settings))

    def price(method: str) -> tuple[bool, int, int, float]:
        return costs[method].state > 0, costs[method].gradients, costs[method].vectors, gaps[method]

    return MethodAdvice(tuple(settings), gaps, level, min(level, key=price))


def _best_first(results: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return tuple(sorted(results, key=lambda each: -each.accuracy))


def setting_distance(wanted: Wanted, setting: tuple[str, str, float, int]) -> float:
    """How far a setting is from the federation: factors of two in participation, half of those in local steps, and
    twice the factors of ten in the concentration of the split.

    Participation is the number of clients per round, which decides how much a round depends on chance, and for clients
    with state also the fraction, which decides how old their state is: then each counts half.
    """
    _, split, participation, steps = setting
    fraction = abs(math.log2(wanted.participation / participation))
    number = abs(math.log2(wanted.clients * wanted.participation / (TESTED * participation)))
    return (
        (number if wanted.stateless else (fraction + number) / 2)
        + abs(math.log2(wanted.steps / steps)) / 2
        + 2 * abs(math.log10(concentration(wanted.split) / concentration(split)))
    )


def concentration(split: str) -> float:
    """The concentration of a Dirichlet split; a large number for IID."""
    kind, _, value = split.partition(":")
    try:
        if kind == "iid" and not value:
            return EVEN
        if kind == "dirichlet" and float(value) > 0:
            return min(EVEN, float(value))
    except ValueError:
        pass
    raise UserError(f"split: must be iid or dirichlet:NUMBER, got {split!r}")


def _gaps(settings: Sequence[tuple[float, Sequence[Evidence]]]) -> dict[str, float]:
    """How many points each method is behind the best, on average over the settings, the smallest first. Only methods
    that are in all of them: averages over different settings cannot be compared."""
    everywhere = set.intersection(*({each.method for each in own} for _, own in settings))
    gaps = dict.fromkeys(everywhere, 0.0)
    for (_, own), weight in zip(settings, _weights(settings), strict=True):
        for each in own:
            if each.method in everywhere:
                gaps[each.method] += weight * (own[0].accuracy - each.accuracy)
    return dict(sorted(gaps.items(), key=lambda item: (item[1], item[0])))  # equal ones by name, not in a set's order


def _weights(settings: Sequence[tuple[float, Sequence[Evidence]]]) -> list[float]:
    """The weights of the settings in averages, with a sum of one."""
    weights = [1 / (1 + distance) for distance, _ in settings]
    return [weight / sum(weights) for weight in weights]


def _level(best: str, other: str, settings: Sequence[tuple[float, Sequence[Evidence]]]) -> bool:
    """Whether a method is behind the best by less than two standard errors, on average over the settings."""
    behind = variance = 0.0
    for (_, own), weight in zip(settings, _weights(settings), strict=True):
        found = {each.method: each for each in own}
        behind += weight * (found[best].accuracy - found[other].accuracy)
        variance += weight**2 * (_error(found[best]) + _error(found[other]))
    return behind < 2 * math.sqrt(variance)


def _error(each: Evidence) -> float:
    """The variance of a mean over seeds."""
    return (each.deviation if each.seeds > 1 else ONE_SEED) ** 2 / each.seeds
