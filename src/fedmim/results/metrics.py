"""The registry of metrics. A metric summarises a run as one number.

The columns of all tables (terminal, HTML page, results.json, CSV, Markdown, LaTeX) and the cards on the page come from
METRICS. To add a column everywhere, add one entry.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedmim.divergence import diverged
from fedmim.experiments.run_folder import Records
from fedmim.results.last_evaluations import explained, how_many, last_accuracies
from fedmim.results.number_formats import byte_size, duration, percent
from fedmim.results.record_columns import column

Summary = dict[str, float | None]  # the metrics of a run by name
Spread = tuple[float, float]  # mean and standard deviation over seeds
TableKind = Literal["terminal", "page", "detail"]


@dataclass(frozen=True)
class Metric:
    """One number of a run, and how tables show it."""

    name: str
    """Name in results.json and CSV files. Names that end in _to_target depend on a target accuracy."""
    compute: Callable[[Records, float | None], float | None]
    """Computes the metric from the records and the target; None if the run has no value."""
    heading: str = ""
    """Column heading on the terminal; empty: no column. In all headings, {} is replaced by the target, and
    {evaluations} by the number of evaluations behind the mean accuracy."""
    page_heading: str = ""
    """Column heading on the page; default: the heading with a capital letter."""
    detail_heading: str = ""
    """Column heading in the detailed Markdown tables of `fedmim reproduce`; empty: no column."""
    card: str = ""
    """Heading of its card on the page; empty: no card."""
    meaning: str = ""
    """Explanation in the notes below a table; empty: the heading is clear enough. {evaluations} is replaced by the
    evaluations behind the mean accuracy, in words."""
    caption: str = ""
    """Explanation in the caption of a table with only this metric; default: the meaning."""
    better: Literal["higher", "lower"] = "lower"
    form: str = "{:.4g}"
    scale: float = 1.0
    """Factor applied before formatting with `form`."""
    long_form: str = ""
    """Format in a table with only this metric; default: `form`."""
    page_form: Callable[[float], str] | None = None
    """Format on the page, with a suitable unit; default: `form`."""
    compared: bool = False
    """Show the standard deviation over seeds, and the best value in bold."""
    of_model: bool = False
    """Measures the quality of the model: a run that diverged has no value."""
    droppable: int = 0
    """Order in which columns are dropped on a narrow terminal: first 1, then 2; 0 is never dropped."""
    incidents: bool = False
    """Counts failures: summed over seeds, and shown as a last column only if there are any."""

    optional: bool = False
    """Shown only if a run of the table has a value."""
    whole: bool = False
    """Whether the metric of a run is a whole number."""
    varying: bool = False
    """Shown only if the runs of the table differ in it."""

    @property
    def to_target(self) -> bool:
        """Whether it depends on a target accuracy."""
        return self.name.endswith("_to_target")

    def number(self, value: float) -> str:
        """A value as text."""
        return self.form.format(value * self.scale)

    def with_unit(self, value: float) -> str:
        """A value as text with its unit, for the page."""
        return self.page_form(value) if self.page_form else self.number(value)

    def heading_of(self, place: TableKind, target: float | None, evaluations: str = "") -> str:
        """The heading of its column; empty: there is no column. For `evaluations`, see `averaged`."""
        page = self.page_heading or self.heading[:1].upper() + self.heading[1:]
        heading = {"terminal": self.heading, "page": page, "detail": self.detail_heading}[place]
        return heading.format(percent(target or 0), evaluations=evaluations)

    def meaning_for(self, summaries: Sequence[Summary]) -> str:
        """Its explanation in a table of these runs."""
        return self.meaning.format(evaluations=explained(averaged(summaries)))


def rounds_to(records: Records, target: float | None) -> int | None:
    """The first round that reaches the target accuracy."""
    if target is None:
        return None
    accuracies = column(records, "test_accuracy")
    return next((round for round, accuracy in enumerate(accuracies, start=1) if (accuracy or 0) >= target), None)


def _bytes_to(records: Records, target: float | None) -> int | None:
    reached = rounds_to(records, target)
    return None if reached is None else sum(sum(column(records, name)[:reached]) for name in ("bytes_up", "bytes_down"))


def _time_to(records: Records, target: float | None) -> float | None:
    reached = rounds_to(records, target)
    times = [] if reached is None else column(records, "simulated_time")[:reached]
    return math.fsum(times) if times and None not in times else None


def _consistency(records: Records, _: float | None) -> float | None:
    return mean(found) if (found := _known(records[-10:], "consistency")) else None


def mean(values: Sequence[float]) -> float:
    """The mean, also if the sum of the values overflows."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def _known(records: Records, field: str) -> list[float]:
    return [value for value in column(records, field) if value is not None]


def _total(field: str) -> Callable[[Records, float | None], float]:
    return lambda records, _: sum(column(records, field))


def _accuracies(records: Records) -> list[float]:
    return _known(records, "test_accuracy")


def _accuracy(
    name: str,
    pick: Callable[[list[float]], float],
    heading: str,
    values: Callable[[Records], list[float]] = _accuracies,
    **more: Any,
) -> Metric:
    """A metric of the test accuracies of a run, in %."""
    return Metric(
        name,
        lambda records, _: pick(found) if (found := values(records)) else None,
        heading,
        f"{heading.capitalize()} (%)",
        better="higher",
        form="{:.2f}",
        scale=100,
        compared=True,
        of_model=True,
        **more,
    )


def _of_clients(field: str, heading: str, page_heading: str, meaning: str, *, spread: bool = False) -> Metric:
    """A metric of the last evaluation on the data of each client, in %."""
    return Metric(
        field,
        lambda records, _: found[-1] if (found := _known(records, field)) else None,
        heading,
        page_heading,
        meaning=meaning,
        form="{:.2f}",
        scale=100,
        of_model=True,
        optional=True,
        better="lower" if spread else "higher",
        compared=not spread,
        droppable=1 if spread else 0,
    )


_METRICS = [
    _accuracy("final_accuracy", lambda each: each[-1], "final", meaning="test accuracy in % at the last evaluation"),
    _accuracy(
        "last_ten_accuracy",
        mean,
        "last {evaluations}",
        last_accuracies,
        meaning="test accuracy in %, mean over {evaluations}",
        detail_heading="last {evaluations}",
        card="Best accuracy",
    ),
    Metric(
        "last_ten_evaluations",
        lambda records, _: len(last_accuracies(records)) or None,
        "averaged",
        meaning="number of evaluations behind that mean",
        form="{:.0f}",
        of_model=True,
        varying=True,
        whole=True,
    ),
    _accuracy("best_accuracy", max, "best", meaning="highest test accuracy in %", detail_heading="best", droppable=1),
    _of_clients(
        "clients_mean",
        "clients",
        "Clients' mean (%)",
        "mean over the clients of the accuracy in % on each client's own test data (on its training data if the data "
        "set has no test data per client), at the last evaluation",
    ),
    _of_clients(
        "clients_worst",
        "worst tenth",
        "Worst tenth (%)",
        "the same, mean over the tenth of the clients with the lowest accuracy",
    ),
    _of_clients(
        "clients_std",
        "std",
        "Clients' std (%)",
        "the same, standard deviation over the clients",
        spread=True,
    ),
    _of_clients(
        "personal_mean",
        "personal",
        "Personal (%)",
        "the same mean, with each client's model after its own local steps from the global model",
    ),
    Metric(
        "rounds_to_target",
        rounds_to,
        "to {}",
        "Rounds to {}",
        detail_heading="rounds to {}",
        card="Fewest rounds to {}",
        meaning="rounds until the test accuracy first reaches this target",
        form="{:.0f}",
        of_model=True,
        whole=True,
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
        whole=True,
    ),
    Metric(
        "consistency",
        _consistency,
        "drift",
        "Client drift",
        detail_heading="client drift",
        card="Lowest client drift",
        meaning="client drift, the mean squared distance of the clients' local models from their average, over the "
        "last ten rounds; smaller is better (the paper calls it consistency)",
        caption="client drift, mean over the last ten rounds; smaller is better",
        form="{:.2g}",
        long_form="{:.3g}",
        of_model=True,
    ),
    Metric(
        "epsilon",
        lambda records, _: found[-1] if (found := _known(records, "epsilon")) else None,
        "epsilon",
        meaning="differential privacy of the clients: (epsilon, dp_delta) after the last round, for the replacement of "
        "all data of one client; smaller is more private",
        form="{:.3g}",
        optional=True,
    ),
    Metric(
        "simulated_time",
        lambda records, _: math.fsum(found) if (found := _known(records, "simulated_time")) else None,
        "time",
        "Simulated time",
        meaning="simulated time of all rounds, in units of the time of a client with median speed and median work",
        form="{:.1f}",
        optional=True,
    ),
    Metric(
        "simulated_time_to_target",
        _time_to,
        "time to {}",
        "Simulated time to {}",
        meaning="simulated time until the test accuracy first reaches this target",
        form="{:.1f}",
        of_model=True,
        optional=True,
    ),
    Metric("bytes_up", _total("bytes_up"), "MB up", "Up", scale=1e-6, page_form=byte_size, droppable=2, whole=True),
    Metric(
        "bytes_down", _total("bytes_down"), "MB down", "Down", scale=1e-6, page_form=byte_size, droppable=2, whole=True
    ),
    Metric(
        "refused",
        _total("refused"),
        "rejected",
        meaning="uploads rejected because they contain NaN or infinity, or are too far from their public point",
        form="{:.0f}",
        incidents=True,
        whole=True,
    ),
    Metric(
        "diverged",
        lambda records, _: int(diverged(records)),
        "diverged",
        meaning="runs in which every upload of the last three rounds was rejected; their accuracy does not count",
        form="{:.0f}",
        incidents=True,
        whole=True,
    ),
    Metric("seconds", _total("seconds"), "seconds", "Time", form="{:.1f}", page_form=duration),
]
METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


def summarise(records: Records, target: float | None) -> Summary:
    """All metrics of one run. A run that diverged has no metrics of model quality."""
    failed = diverged(records)
    return {
        metric.name: None if failed and metric.of_model else metric.compute(records, target)
        for metric in METRICS.values()
    }


def shown_metrics(summaries: Sequence[Summary]) -> list[Metric]:
    """The metrics that a table of these runs shows. Failure counts come last, and only if there are any."""
    metrics = sorted(METRICS.values(), key=lambda metric: metric.incidents)
    metrics = [each for each in metrics if not each.optional or _values(each, summaries)]
    return [each for each in metrics if not each.incidents or any(summary[each.name] for summary in summaries)]


def columns(place: TableKind, summaries: Sequence[Summary], target: float | None) -> dict[Metric, str]:
    """The metrics with a column in a table of these runs, and their headings."""
    metrics = [each for each in shown_metrics(summaries) if target is not None or not each.to_target]
    metrics = [each for each in metrics if not each.varying or len(_values(each, summaries)) > 1]
    headings = {each: each.heading_of(place, target, averaged(summaries)) for each in metrics}
    return {metric: heading for metric, heading in headings.items() if heading}


def _values(metric: Metric, summaries: Sequence[Summary]) -> set[float]:
    """The different values of a metric in these runs."""
    return {value for summary in summaries if (value := summary[metric.name]) is not None}


def averaged(summaries: Sequence[Summary]) -> str:
    """The number of evaluations behind the mean accuracies of these runs."""
    return how_many(_values(METRICS["last_ten_evaluations"], summaries))
