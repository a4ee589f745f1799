"""The table of a comparison on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedmim.report.style import styles
from fedmim.results.method_results import MethodResults
from fedmim.results.metrics import Metric, columns
from fedmim.results.number_formats import listed


def fitting_table(methods: Sequence[MethodResults], target: float | None, console: Console) -> Table:
    """The table, with as many columns as fit the console."""
    table = comparison_table(methods, target)
    for without in (1, 2):
        if console.measure(table, options=console.options.update(width=1000)).maximum > console.width:
            table = comparison_table(methods, target, without)
    return table


def comparison_table(methods: Sequence[MethodResults], target: float | None, without: int = 0) -> Table:
    """One row per method and one column per metric. Metrics with `droppable` from 1 to `without` are omitted.

    Learning rates have a column if they differ.
    """
    table = Table(title_justify="left", header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    table.add_column("")
    shown = _columns(methods, target)
    metrics = [metric for metric in shown if not 0 < metric.droppable <= without]
    rates = [f"{method.run.config.settings.lr:g}" for method in methods]
    own_rates = len(set(rates)) > 1
    for heading in (*["learning rate"] * own_rates, *(shown[metric] for metric in metrics)):
        table.add_column(heading, justify="right", no_wrap=True)
    for method, rate, style in zip(methods, rates, styles(method.run.method for method in methods), strict=True):
        cells = [*[Text(rate)] * own_rates, *(_cell(method, metric, methods) for metric in metrics)]
        table.add_row(Text(method.label, style=style.colour), *cells)
    return table


def notes(methods: Sequence[MethodResults], target: float | None) -> str:
    """Explanations of the columns."""
    summaries = [summary for method in methods for summary in method.summaries]
    headings = columns("terminal", summaries, target).items()
    parts = [f"{heading}: {metric.meaning_for(summaries)}." for metric, heading in headings if metric.meaning]
    seeds = len(methods[0].seeds)
    if seeds > 1:
        parts.append(f"± is the standard deviation over {seeds} seeds.")
    if names := [method.label for method in methods if method.reference]:
        parts.append(f"{listed(names)}: for reference, not ranked.")
    return "\n".join([*parts, *filter(None, map(_stops, methods))])


def _stops(method: MethodResults) -> str:
    """Where the runs of a method stopped early; empty if they did not."""
    stops = [(f"seed {run.seed} " if len(method.runs) > 1 else "") + run.stopped for run in method.runs if run.stopped]
    return f"{method.label}: {'; '.join(stops)}." if stops else ""


def _columns(methods: Sequence[MethodResults], target: float | None) -> dict[Metric, str]:
    return columns("terminal", [summary for method in methods for summary in method.summaries], target)


def _cell(method: MethodResults, metric: Metric, methods: Sequence[MethodResults]) -> Text:
    pair = method.over_seeds(metric.name)
    if pair is None:
        return Text(method.text(metric.name), style="dim" if metric.to_target else "")
    means = [other[0] for each in methods if not each.reference and (other := each.over_seeds(metric.name))]
    ranked = metric.compared and not method.reference
    best = ranked and pair[0] == (max if metric.better == "higher" else min)(means)
    return Text(method.text(metric.name), style="bold" if best else "")
