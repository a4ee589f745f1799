"""The cards of the page: the best method in accuracy, rounds, bytes and client drift, compared with FedAvg."""

from __future__ import annotations

from dataclasses import dataclass

from fedmim.results.grouping import RunGroup
from fedmim.results.last_evaluations import which_evaluations
from fedmim.results.method_results import MethodResults
from fedmim.results.metrics import METRICS, Metric, Spread, averaged
from fedmim.results.number_formats import listed, percent

Means = dict[MethodResults, Spread]
FURTHER = 6  # methods listed below the one that came closest to the target


@dataclass(frozen=True)
class Card:
    """One card: the best method in one metric."""

    heading: str
    figure: str  # the best value
    spread: str  # its standard deviation over seeds, where it has one
    label: str | None  # the best method; None if the card is not about a single one
    notes: tuple[str, ...]
    meaning: str = ""  # explanation of the metric


def verdict(group: RunGroup) -> list[Card]:
    """The cards of a group, one per metric that has a card. Metrics without any value are omitted."""
    cards = []
    for metric in METRICS.values():
        if metric.card and (group.target is not None or not metric.to_target):
            means = _means(group, metric)
            if metric.to_target and not means:
                cards.append(_closest(group))
            else:
                cards.append((_highest if metric.better == "higher" else _lowest)(group, metric, means))
    found = [card for card in [*cards, _diverged(group)] if card is not None]
    return list(dict.fromkeys(found))  # rounds and bytes share one card if the target was not reached


def _means(group: RunGroup, metric: Metric) -> Means:
    """The methods that have a value for every seed, without references."""
    pairs = {method: method.over_seeds(metric.name) for method in group.lines if not method.reference}
    return {method: pair for method, pair in pairs.items() if pair is not None}


def _diverged(group: RunGroup) -> Card | None:
    """The runs that diverged. No other card includes them."""
    failed = [run for run in group.runs if run.diverged]
    if not failed:
        return None
    seeds: dict[str, list[str]] = {}
    for run in failed:
        seeds.setdefault(run.run.label, []).append(str(run.seed))
    notes = [f"{label}: seed{'s' * (len(each) > 1)} {listed(each)}" for label, each in seeds.items()]
    why = "All uploads of their last rounds were rejected (not finite, or too far away). The model no longer learns."
    return Card("Diverged", f"{len(failed)} of {len(group.runs)} runs", "", None, (*notes, why))


def _closest(group: RunGroup) -> Card | None:
    """How far each method came, if no method has reached the target with every seed."""
    metric = METRICS["best_accuracy"]
    means = _means(group, metric)
    if not means:
        return None
    best, *others = sorted(means, key=lambda method: -means[method][0])
    mean, deviation = means[best]
    spread = f"± {metric.number(deviation)}" if len(best.seeds) > 1 else ""
    every = " with every seed" if any(method.by_seed("rounds_to_target") for method in means) else ""
    notes = [f"Highest test accuracy; no method has reached the target{every}{_seeds_at_target(best)}{_so_far(best)}"]
    notes += [
        f"{method.label}: {metric.number(means[method][0])}%{_seeds_at_target(method)}{_so_far(method)}"
        for method in others[:FURTHER]
    ]
    if len(others) > FURTHER:
        notes.append(f"and {len(others) - FURTHER} more")
    heading = f"Closest to the target of {percent(group.target or 0)}"
    return Card(heading, f"{metric.number(mean)}%", spread, best.label, tuple(notes))


def _seeds_at_target(method: MethodResults) -> str:
    reached = len(method.by_seed("rounds_to_target"))
    return f" (reached with {reached} of {len(method.seeds)} seeds)" if reached else ""


def _highest(group: RunGroup, metric: Metric, means: Means) -> Card | None:
    """The card of a metric in % where higher is better."""
    if not means:
        return None
    best = max(means, key=lambda method: means[method][0])
    mean, deviation = means[best]
    seeds = len(best.seeds)
    spread = f"± {metric.number(deviation)}" if seeds > 1 else ""
    over = f"± over {seeds} seeds" if seeds > 1 else "one seed"
    notes = [f"Mean of {which_evaluations(averaged(best.summaries))}, {over}{_so_far(best)}"]
    # A lead within one standard deviation does not count.
    level = [
        method.label
        for method, (other, own) in means.items()
        if method is not best and len(method.seeds) > 1 and mean - other <= max(deviation, own)
    ]
    if level:
        notes.append(f"Within one standard deviation: {listed(level)}")
    for method in _named(group, best, means, metric):
        if method in means:  # otherwise it was not evaluated yet
            other = means[method][0]
            less = metric.number(mean - other)
            notes.append(f"{method.label}: {metric.number(other)}% ({less} points less){_so_far(method)}")
    notes += [
        f"{method.label}, for reference: {metric.number(pair[0])}%{_so_far(method)}"
        for method in group.lines
        if method.reference and (pair := method.over_seeds(metric.name))
    ]
    return Card(metric.card, f"{metric.number(mean)}%", spread, best.label, tuple(notes))


def _lowest(group: RunGroup, metric: Metric, means: Means) -> Card | None:
    """The card of a metric where lower is better."""
    goal = percent(group.target or 0) if metric.to_target else ""
    heading = metric.card.format(goal)
    if not means:
        return None
    best = min(means, key=lambda method: means[method][0])
    mean = means[best][0]
    if not mean:  # client drift with one client per round
        return None
    ties = [method.label for method, (value, _) in means.items() if method is not best and value == mean]
    notes = [f"Tied: {listed(ties)}"] if ties else []
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
            accuracy = method.over_seeds("best_accuracy")
            came = f", best {METRICS['best_accuracy'].number(accuracy[0])}%" if accuracy else ""
            notes.append(f"{method.label}: not reached{seeds}{came}{_so_far(method)}")
    meaning = "" if goal else metric.meaning
    return Card(heading, metric.with_unit(mean), "", best.label, tuple(notes), meaning[:1].upper() + meaning[1:])


def _named(group: RunGroup, best: MethodResults, means: Means, metric: Metric) -> list[MethodResults]:
    """The methods listed below the best: FedAvg, the baseline, and the best FedMIM variant."""
    chosen = [next((method for method in group.lines if method.run.method == "fedavg"), None)]
    ours = [method for method in group.lines if method.run.method == "fedmim"]
    known = [method for method in ours if method in means]
    if best.run.method != "fedmim" and ours:
        better = max if metric.better == "higher" else min
        chosen.append(better(known, key=lambda method: means[method][0]) if known else ours[0])
    return [method for method in chosen if method is not None and method is not best]


def _so_far(method: MethodResults) -> str:
    """A note for runs in progress, and for runs that stopped early."""
    if stopped := method.runs[0].stopped:
        return f", {stopped}" + f" (seed {method.seeds[0]})" * (len(method.seeds) > 1)
    done, rounds = len(method.records[0]), method.run.config.settings.rounds
    return f", after {done} of {rounds} rounds" if done < rounds else ""
