"""The verdict in figures: who is best in accuracy, rounds, bytes and consistency, against FedAvg."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedmim.report.results import Method
from fedmim.report.sets import Problem
from fedmim.report.wording import listed, percent, size


@dataclass(frozen=True)
class Card:
    """One figure of the verdict."""

    heading: str
    figure: str  # the best value
    spread: str  # its standard deviation over seeds, where it has one
    label: str | None  # whose it is; None where nobody has one
    notes: tuple[str, ...]


def verdict(problem: Problem) -> list[Card]:
    """The cards of a problem; those without any figure are left out."""
    cards = [_accuracy(problem)]
    if problem.target is not None:
        goal = percent(problem.target)
        cards += [
            _least(problem, f"Fewest rounds to {goal}", "rounds_to_target", lambda value: f"{value:.0f}", goal),
            _least(problem, f"Fewest bytes to {goal}", "bytes_to_target", size, goal),
        ]
    cards.append(_least(problem, "Most consistent clients", "consistency", lambda value: f"{value:.2g}", None))
    return [card for card in cards if card is not None]


def _accuracy(problem: Problem) -> Card | None:
    means = _means(problem, "last_ten_accuracy")
    if not means:
        return None
    best = max(means, key=lambda method: means[method][0])
    mean, deviation = means[best]
    spread = f"± {100 * deviation:.2f}" if len(best.seeds) > 1 else ""
    notes = [_seeds(best) + _so_far(best)]
    # A lead within the spread of the seeds is none.
    level = [
        method.label
        for method, (other, own) in means.items()
        if method is not best and len(method.seeds) > 1 and mean - other <= max(deviation, own)
    ]
    if level:
        notes.append(f"Within the spread of the seeds: {listed(level)}")
    for method in _named(problem, best, means, max):
        if method not in means:  # not evaluated yet
            continue
        less = 100 * (mean - means[method][0])
        notes.append(f"{method.label}: {100 * means[method][0]:.2f}% ({less:.2f} points less){_so_far(method)}")
    return Card("Best accuracy", f"{100 * mean:.2f}%", spread, best.label, tuple(notes))


def _least(problem: Problem, heading: str, figure: str, form: Callable[[float], str], goal: str | None) -> Card | None:
    """A figure of which less is better."""
    means = _means(problem, figure)
    if not means:
        return Card(heading, "never", "", None, (f"No method has reached {goal}.",)) if goal else None
    best = min(means, key=lambda method: means[method][0])
    mean = means[best][0]
    if not mean:  # consistency where one client trains a round
        return None
    ties = [method.label for method, (value, _) in means.items() if method is not best and value == mean]
    notes = [f"Level: {listed(ties)}"] if ties else []
    for method in _named(problem, best, means, min):
        if method.label in ties:
            continue
        if method in means:
            ratio = means[method][0] / mean
            times = f" ({ratio:.3g}×)" if ratio > 1.004 else ""
            notes.append(f"{method.label}: {form(means[method][0])}{times}{'' if goal else _so_far(method)}")
        elif goal:
            missed = sum(getattr(summary, figure) is None for summary in method.summaries)
            seeds = "" if missed == len(method.seeds) else f" with {missed} of {len(method.seeds)} seeds"
            notes.append(f"{method.label} has not reached it{seeds}{_so_far(method)}")
    return Card(heading, form(mean), "", best.label, tuple(notes))


def _means(problem: Problem, figure: str) -> dict[Method, tuple[float, float]]:
    return {method: pair for method in problem.lines if (pair := method.over_seeds(figure)) is not None}


def _named(
    problem: Problem, best: Method, means: dict[Method, tuple[float, float]], better: Callable[..., Method]
) -> list[Method]:
    """Whom to name beside the best: FedAvg, the yardstick, and FedMIM at its best."""
    chosen = [next((method for method in problem.lines if method.run.method == "fedavg"), None)]
    ours = [method for method in problem.lines if method.run.method == "fedmim"]
    known = [method for method in ours if method in means]
    if best.run.method != "fedmim" and ours:
        chosen.append(better(known, key=lambda method: means[method][0]) if known else ours[0])
    return [method for method in chosen if method is not None and method is not best]


def _so_far(method: Method) -> str:
    """What to add for a run under way."""
    done, rounds = len(method.records[0]), method.run.config.settings.rounds
    return f", after {done} of {rounds} rounds" if done < rounds else ""


def _seeds(method: Method) -> str:
    number = len(method.seeds)
    return f"Mean of the last ten evaluations, {'one seed' if number == 1 else f'± over {number} seeds'}"
