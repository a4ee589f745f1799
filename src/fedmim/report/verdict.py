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
    cards = []
    for metric in METRICS.values():
        if metric.card and (group.target is not None or not metric.to_target):
            pairs = {method: method.over_seeds(metric.name) for method in group.lines}
            means = {method: pair for method, pair in pairs.items() if pair is not None}
            cards.append((_highest if metric.better == "higher" else _lowest)(group, metric, means))
    return [card for card in [*cards, _diverged(group)] if card is not None]


def _diverged(group: RunGroup) -> Card | None:
    """The runs that have diverged, which no other card names as best or counts in a mean."""
    failed = [run for run in group.runs if run.diverged]
    if not failed:
        return None
    seeds: dict[str, list[str]] = {}
    for run in failed:
        seeds.setdefault(run.run.label, []).append(str(run.seed))
    notes = [f"{label}: seed{'s' * (len(each) > 1)} {listed(each)}" for label, each in seeds.items()]
    why = "Every upload of their last rounds was rejected because it was not finite: the model no longer learns."
    return Card("Diverged", f"{len(failed)} of {len(group.runs)} runs", "", None, (*notes, why))


def _highest(group: RunGroup, metric: Metric, means: Means) -> Card | None:
    """A metric in %, of which more is better."""
    if not means:
        return None
    best = max(means, key=lambda method: means[method][0])
    mean, deviation = means[best]
    seeds = len(best.seeds)
    spread = f"± {metric.number(deviation)}" if seeds > 1 else ""
    over = f"± over {seeds} seeds" if seeds > 1 else "one seed"
    notes = [f"Mean of the last ten evaluations, {over}{_so_far(best)}"]
    # A lead within the spread of the seeds is none.
    level = [
        method.label
        for method, (other, own) in means.items()
        if method is not best and len(method.seeds) > 1 and mean - other <= max(deviation, own)
    ]
    if level:
        notes.append(f"Within the spread of the seeds: {listed(level)}")
    for method in _named(group, best, means, metric):
        if method in means:  # else not evaluated yet
            other = means[method][0]
            less = metric.number(mean - other)
            notes.append(f"{method.label}: {metric.number(other)}% ({less} points less){_so_far(method)}")
    return Card(metric.card, f"{metric.number(mean)}%", spread, best.label, tuple(notes))


def _lowest(group: RunGroup, metric: Metric, means: Means) -> Card | None:
    """A metric of which less is better."""
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
            value = means[method][0]
            times = f" ({value / mean:.3g}×)" if value / mean > 1.004 else ""
            notes.append(f"{method.label}: {metric.with_unit(value)}{times}{'' if goal else _so_far(method)}")
        elif goal and not method.diverged:
            missed = method.missing(metric.name)
            seeds = "" if missed == len(method.seeds) else f" with {missed} of {len(method.seeds)} seeds"
            notes.append(f"{method.label} has not reached it{seeds}{_so_far(method)}")
    return Card(heading, metric.with_unit(mean), "", best.label, tuple(notes))


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
