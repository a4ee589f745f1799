"""The registry of metrics: each sums up a run in one number.

The columns of every table come from it: on the terminal, on the page, in results.json and in the paper's CSV, Markdown
and LaTeX files; so do the cards of the verdict. A new column is one new entry in METRICS.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedmim.divergence import diverged
from fedmim.experiments.run_folder import Records
from fedmim.results.number_formats import byte_size, duration, percent
from fedmim.results.record_columns import column

Summary = dict[str, float | None]  # the metrics of a run by name
Spread = tuple[float, float]  # mean and standard deviation over seeds
TableKind = Literal["terminal", "page", "detail"]


@dataclass(frozen=True)
class Metric:
    """One number of a run, and how tables show it."""

    name: str
    """In results.json and CSV files. A name that ends in _to_target is counted to a target accuracy."""
    compute: Callable[[Records, float | None], float | None]
    """From the records and the target; None where the run has no such number."""
    heading: str = ""
    """On the terminal; empty: no column there. {} stands for the target in all headings."""
    page_heading: str = ""
    """On the page; empty: the heading with a capital letter."""
    detail_heading: str = ""
    """In the details of the paper's Markdown tables; empty: no column there."""
    card: str = ""
    """Heading of its card in the verdict; empty: no card."""
    meaning: str = ""
    """What it means, for the notes below a table; empty: the heading says it."""
    caption: str = ""
    """What it means, in the caption of a table of this metric alone; empty: the meaning."""
    better: Literal["higher", "lower"] = "lower"
    form: str = "{:.4g}"
    scale: float = 1.0
    """The number is multiplied by it before `form` is applied."""
    long_form: str = ""
    """In a table of this metric alone; empty: `form`."""
    page_form: Callable[[float], str] | None = None
    """On the page, with a unit that suits the number; None: `form`."""
    compared: bool = False
    """Shown with its standard deviation over seeds, the best one in bold."""
    of_model: bool = False
    """Says how good the model is or became: a run that has diverged has no such number."""
    droppable: int = 0
    """Where the terminal is too narrow: 1 goes first, then 2; 0 stays."""
    incidents: bool = False
    """Counts what should not happen: a column only where some run has any, after all others; seeds are added up."""

    @property
    def to_target(self) -> bool:
        """Whether it is counted to a target accuracy."""
        return self.name.endswith("_to_target")

    def number(self, value: float) -> str:
        """A value as text."""
        return self.form.format(value * self.scale)

    def with_unit(self, value: float) -> str:
        """A value as the page shows it."""
        return self.page_form(value) if self.page_form else self.number(value)

    def heading_of(self, place: TableKind, target: float | None) -> str:
        """What stands above its column; empty: there is none."""
        page = self.page_heading or self.heading[:1].upper() + self.heading[1:]
        heading = {"terminal": self.heading, "page": page, "detail": self.detail_heading}[place]
        return heading.format(percent(target or 0))


def rounds_to(records: Records, target: float | None) -> int | None:
    """The first round that reaches the target accuracy."""
    if target is None:
        return None
    accuracies = column(records, "test_accuracy")
    return next((round for round, accuracy in enumerate(accuracies, start=1) if (accuracy or 0) >= target), None)


def _bytes_to(records: Records, target: float | None) -> int | None:
    reached = rounds_to(records, target)
    return None if reached is None else sum(sum(column(records, name)[:reached]) for name in ("bytes_up", "bytes_down"))


def _consistency(records: Records, _: float | None) -> float | None:
    return mean(found) if (found := _known(records[-10:], "consistency")) else None


def mean(values: Sequence[float]) -> float:
    """The mean, also of numbers whose sum is past the largest float."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def _known(records: Records, field: str) -> list[float]:
    return [value for value in column(records, field) if value is not None]


def _total(field: str) -> Callable[[Records, float | None], float]:
    return lambda records, _: sum(column(records, field))


def _accuracy(name: str, pick: Callable[[list[float]], float], heading: str, **more: Any) -> Metric:
    """A metric of the test accuracies of a run, in %."""
    return Metric(
        name,
        lambda records, _: pick(found) if (found := _known(records, "test_accuracy")) else None,
        heading,
        f"{heading.capitalize()} %",
        better="higher",
        form="{:.2f}",
        scale=100,
        compared=True,
        of_model=True,
        **more,
    )


_METRICS = [
    _accuracy("final_accuracy", lambda each: each[-1], "final", meaning="test accuracy in % of the last evaluation"),
    _accuracy(
        "last_ten_accuracy",  # the last evaluation alone jumps about
        lambda each: mean(each[-10:]),
        "last 10",
        meaning="test accuracy in %, mean of the last ten evaluations",
        detail_heading="last ten",
        card="Best accuracy",
    ),
    _accuracy("best_accuracy", max, "best", meaning="highest test accuracy in %", detail_heading="best", droppable=1),
    Metric(
        "rounds_to_target",
        rounds_to,
        "to {}",
        "Rounds to {}",
        detail_heading="rounds to {}",
        card="Fewest rounds to {}",
        meaning="rounds until that accuracy",
        form="{:.0f}",
        of_model=True,
    ),
    Metric(
        "bytes_to_target",
        _bytes_to,
        page_heading="Bytes to {}",
        detail_heading="MB to {}",
        card="Fewest bytes to {}",
        form="{:.0f}",
        scale=1e-6,
        page_form=byte_size,
        of_model=True,
    ),
    Metric(
        "consistency",
        _consistency,
        "consistency",
        detail_heading="consistency",
        card="Most consistent clients",
        meaning="mean squared distance of the clients' models from their mean, over the last ten rounds; smaller "
        "is better",
        caption="mean over the last ten rounds, smaller is better",
        form="{:.2g}",
        long_form="{:.3g}",
        of_model=True,
    ),
    Metric("bytes_up", _total("bytes_up"), "MB up", "Up", scale=1e-6, page_form=byte_size, droppable=2),
    Metric("bytes_down", _total("bytes_down"), "MB down", "Down", scale=1e-6, page_form=byte_size, droppable=2),
    Metric(
        "refused", _total("refused"), "rejected", meaning="uploads with NaN or infinity", form="{:.0f}", incidents=True
    ),
    Metric(
        "diverged",
        lambda records, _: int(diverged(records)),
        "diverged",
        meaning="runs in whose last three rounds every upload was rejected; their other figures do not count",
        form="{:.0f}",
        incidents=True,
    ),
    Metric("seconds", _total("seconds"), "seconds", "Time", form="{:.1f}", page_form=duration),
]
METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


def summarise(records: Records, target: float | None) -> Summary:
    """All metrics of one run; one that has diverged has none that say how good its model is."""
    failed = diverged(records)
    return {
        metric.name: None if failed and metric.of_model else metric.compute(records, target)
        for metric in METRICS.values()
    }


def shown_metrics(summaries: Sequence[Summary]) -> list[Metric]:
    """The metrics that a table of these runs shows: incidents come last, and only where there are any."""
    metrics = sorted(METRICS.values(), key=lambda metric: metric.incidents)
    return [each for each in metrics if not each.incidents or any(summary[each.name] for summary in summaries)]


def columns(place: TableKind, summaries: Sequence[Summary], target: float | None) -> dict[Metric, str]:
    """The metrics that have a column in a table of these runs, each with its heading."""
    metrics = [each for each in shown_metrics(summaries) if target is not None or not each.to_target]
    return {metric: heading for metric in metrics if (heading := metric.heading_of(place, target))}
