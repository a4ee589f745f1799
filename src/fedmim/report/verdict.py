"""The verdict as cards: which method is best in accuracy, rounds, bytes and consistency, compared with FedAvg."""

from __future__ import annotations

from dataclasses import dataclass

from fedmim.results.grouping import RunGroup
from fedmim.results.method_results import MethodResults
from fedmim.results.metrics import METRICS, Metric, Spread
from fedmim.results.number_formats import listed, percent

Means = dict[MethodResults, Spread]


@dataclass(frozen=True)
class Card:
    """One metric of the verdict."""

    heading: str
    figure: str  # the best value
    spread: str  # its standard deviation over seeds, where it has one
    label: str | None  # the best method; None where no method has a value
    notes: tuple[str, ...]


def verdict(group: RunGroup) -> list[Card]:
    """The cards of a group, one for each metric that has a card; those without any value are left out."""
    metrics = [metric for metric in METRICS.values() if metric.card]
    if group.target is None:
        metrics = [metric for metric in metrics if not metric.to_target]
    cards = [_highest(group, metric) if metric.better == "higher" else _lowest(group, metric) for metric in metrics]
    return [card for card in cards if card is not None]


def _highest(group: RunGroup, metric: Metric) -> Card | None:
    """A metric in %, of which more is better."""
    means = _means(group, metric)
    if not means:
        return None
    best = max(means, key=lambda method: means[method][0])
    mean, deviation = means[best]
    spread = f"± {metric.number(deviation)}" if len(best.seeds) > 1 else ""
    notes = [_seeds(best) + _so_far(best)]
    # A lead within the spread of the seeds is none.
    level = [
        method.label
        for method, (other, own) in means.items()
        if method is not best and len(method.seeds) > 1 and mean - other <= max(deviation, own)
    ]
    if level:
        notes.append(f"Within the spread of the seeds: {listed(level)}")
    for method in _named(group, best, means, metric):
        if method not in means:  # not evaluated yet
            continue
        other = means[method][0]
        less = metric.number(mean - other)
        notes.append(f"{method.label}: {metric.number(other)}% ({less} points less){_so_far(method)}")
    return Card(metric.card, f"{metric.number(mean)}%", spread, best.label, tuple(notes))


def _lowest(group: RunGroup, metric: Metric) -> Card | None:
    """A metric of which less is better."""
    means = _means(group, metric)
    goal = percent(group.target or 0) if metric.to_target else ""
    heading = metric.card.format(goal)
    if not means:
        return Card(heading, "never", "", None, (f"No method has reached {goal}.",)) if goal else None
    best = min(means, key=lambda method: means[method][0])
    mean = means[best][0]
    if not mean:  # consistency where one client trains per round
        return None
    ties = [method.label for method, (value, _) in means.items() if method is not best and value == mean]
    notes = [f"Level: {listed(ties)}"] if ties else []
    for method in _named(group, best, means, metric):
        if method.label in ties:
            continue
        if method in means:
            ratio = means[method][0] / mean
            times = f" ({ratio:.3g}×)" if ratio > 1.004 else ""
            notes.append(
                f"{method.label}: {metric.with_unit(means[method][0])}{times}{'' if goal else _so_far(method)}"
            )
        elif goal:
            missed = method.missing(metric.name)
            seeds = "" if missed == len(method.seeds) else f" with {missed} of {len(method.seeds)} seeds"
            notes.append(f"{method.label} has not reached it{seeds}{_so_far(method)}")
    return Card(heading, metric.with_unit(mean), "", best.label, tuple(notes))


def _means(group: RunGroup, metric: Metric) -> Means:
    return {method: pair for method in group.lines if (pair := method.over_seeds(metric.name)) is not None}


def _named(group: RunGroup, best: MethodResults, means: Means, metric: Metric) -> list[MethodResults]:
    """The methods that are named beside the best: FedAvg, the baseline, and FedMIM at its best."""
    chosen = [next((method for method in group.lines if method.run.method == "fedavg"), None)]
    ours = [method for method in group.lines if method.run.method == "fedmim"]
    known = [method for method in ours if method in means]
    if best.run.method != "fedmim" and ours:
        better = max if metric.better == "higher" else min
        chosen.append(better(known, key=lambda method: means[method][0]) if known else ours[0])
    return [method for method in chosen if method is not None and method is not best]


def _so_far(method: MethodResults) -> str:
    """What to add for a run in progress."""
    done, rounds = len(method.records[0]), method.run.config.settings.rounds
    return f", after {done} of {rounds} rounds" if done < rounds else ""


def _seeds(method: MethodResults) -> str:
    number = len(method.seeds)
    return f"Mean of the last ten evaluations, {'one seed' if number == 1 else f'± over {number} seeds'}"
