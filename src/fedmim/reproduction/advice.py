"""Which method to use in a setting: the evidence of the nearest settings, and the method that does best there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedmim.errors import UserError
from fedmim.experiments.methods import make_method
from fedmim.reproduction.evidence import Evidence

NEAREST = 3  # settings to look at
ONE_SEED = 1.0  # the deviation over seeds, in points, where there is one seed: about the median of the other results
EVEN = 30.0  # the concentration of a Dirichlet split that counts as IID


@dataclass(frozen=True)
class Wanted:
    """A federation, and what its clients can do."""

    participation: float
    split: str
    steps: int
    stateless: bool = False  # clients keep nothing between rounds
    gradients: int = 2  # at most this many gradients per local step
    vectors: int = 9  # at most this many vectors of the model's size per client and round, down and up together


@dataclass(frozen=True)
class MethodAdvice:
    """The nearest settings with their results, best first, and the methods by their mean gap to the best."""

    settings: tuple[tuple[float, tuple[Evidence, ...]], ...]  # distance and results
    gaps: tuple[tuple[str, float], ...]  # method and points behind the best of each setting, on average; best first
    level: tuple[str, ...]  # methods that the seeds do not separate from the first of `gaps`

    def of(self, method: str) -> list[Evidence]:
        """The results of a method in the settings, the nearest first."""
        return [each for _, results in self.settings for each in results if each.method == method]


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
    chosen = [sorted(groups[setting], key=lambda each: -each.accuracy) for setting in near]
    gaps = sorted(_gaps(chosen).items(), key=lambda item: item[1])
    return MethodAdvice(
        tuple((setting_distance(wanted, setting), tuple(own)) for setting, own in zip(near, chosen, strict=True)),
        tuple(gaps),
        tuple(method for method, _ in gaps[1:] if _level(gaps[0][0], method, chosen)),
    )


def setting_distance(wanted: Wanted, setting: tuple[str, str, float, int]) -> float:
    """How far a setting is from the federation: factors of two in participation, half of those in local steps, and
    twice the factors of ten in the concentration of the split."""
    _, split, participation, steps = setting
    return (
        abs(math.log2(wanted.participation / participation))
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


def _gaps(settings: Sequence[Sequence[Evidence]]) -> dict[str, float]:
    """How many points each method is behind the best, on average over the settings that have it; only methods that are
    in most of the settings."""
    gaps: dict[str, list[float]] = {}
    for own in settings:
        best = max(each.accuracy for each in own)
        for each in own:
            gaps.setdefault(each.method, []).append(best - each.accuracy)
    return {name: fmean(own) for name, own in gaps.items() if 2 * len(own) > len(settings)}


def _level(best: str, other: str, settings: Sequence[Sequence[Evidence]]) -> bool:
    """Whether a method is behind the best by less than two standard errors, on average over the settings with both."""
    pairs = [
        (own[best], own[other])
        for own in ({each.method: each for each in group} for group in settings)
        if best in own and other in own
    ]
    behind = sum(first.accuracy - second.accuracy for first, second in pairs)
    return bool(pairs) and behind < 2 * math.sqrt(sum(_error(each) for pair in pairs for each in pair))


def _error(each: Evidence) -> float:
    """The variance of a mean over seeds."""
    return (each.deviation if each.seeds > 1 else ONE_SEED) ** 2 / each.seeds
