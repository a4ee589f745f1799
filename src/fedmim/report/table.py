"""The table of a comparison on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedmim.report.results import Method
from fedmim.report.style import styles

HEADINGS = {
    "final_accuracy": "final",
    "last_ten_accuracy": "last 10",
    "best_accuracy": "best",
    "rounds_to_target": "to {}",
    "consistency": "consistency",
    "bytes_up": "MB up",
    "bytes_down": "MB down",
    "seconds": "seconds",
    "refused": "refused",
}


def fitting_table(methods: Sequence[Method], target: float | None, console: Console) -> Table:
    """The table with as many columns as the console has room for: the best accuracy goes first, then the bytes."""
    table = comparison_table(methods, target)
    for without in (("best_accuracy",), ("best_accuracy", "bytes_up", "bytes_down")):
        if console.measure(table, options=console.options.update(width=1000)).maximum > console.width:
            table = comparison_table(methods, target, without)
    return table


def comparison_table(methods: Sequence[Method], target: float | None, without: Sequence[str] = ()) -> Table:
    """Final and best accuracy, rounds to the target, consistency, bytes and seconds; the best accuracy in bold."""
    table = Table(title_justify="left", header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    table.add_column("")
    headings = {name: heading for name, heading in HEADINGS.items() if name not in without}
    if target is None:
        del headings["rounds_to_target"]
    if not any(summary.refused for method in methods for summary in method.summaries):
        del headings["refused"]
    for heading in headings.values():
        table.add_column(heading.format(f"{target or 0:.0%}"), justify="right", no_wrap=True)
    best = {figure: _best(methods, figure) for figure in headings if figure.endswith("accuracy")}
    for method, style in zip(methods, styles(method.run.method for method in methods), strict=True):
        cells = [_cell(method, figure, best.get(figure)) for figure in headings]
        table.add_row(Text(method.label, style=style.colour), *cells)
    return table


def _cell(method: Method, figure: str, best: float | None) -> Text:
    if figure.endswith("accuracy"):
        return _accuracy(method, figure, best)
    if figure == "rounds_to_target":
        return _rounds(method)
    if figure == "refused":
        return Text(str(sum(summary.refused for summary in method.summaries)))
    form, scale = {"consistency": ("{:.2g}", 1.0), "seconds": ("{:.1f}", 1.0)}.get(figure, ("{:.4g}", 1e-6))
    return _number(method, figure, form, scale)


def notes(target: float | None, seeds: int) -> str:
    """What the columns mean."""
    parts = [
        "Test accuracy in %: of the last evaluation, mean of the last ten, best.",
        *([f"to {target:.0%}: rounds until that accuracy."] if target is not None else []),
        "consistency: mean squared distance of the clients' models from their mean, over the last ten rounds; "
        "smaller is better.",
    ]
    if seeds > 1:
        parts.append(f"± is the standard deviation over {seeds} seeds.")
    return " ".join(parts)


def _best(methods: Sequence[Method], figure: str) -> float | None:
    means = [pair[0] for method in methods if (pair := method.over_seeds(figure))]
    return max(means, default=None)


def _accuracy(method: Method, figure: str, best: float | None) -> Text:
    pair = method.over_seeds(figure)
    if pair is None:
        return Text("-")
    return Text(_with_spread(pair, len(method.seeds), "{:.2f}", 100), style="bold" if pair[0] == best else "")


def _rounds(method: Method) -> Text:
    reached = [summary.rounds_to_target for summary in method.summaries]
    if None in reached:
        missed = reached.count(None)
        return Text("never" if missed == len(reached) else f"{missed} of {len(reached)} never", style="dim")
    return _number(method, "rounds_to_target", "{:.0f}")


def _number(method: Method, figure: str, form: str, scale: float = 1.0) -> Text:
    pair = method.over_seeds(figure)
    return Text("-" if pair is None else form.format(pair[0] * scale))


def _with_spread(pair: tuple[float, float], seeds: int, form: str, scale: float) -> str:
    mean = form.format(pair[0] * scale)
    return f"{mean} ± {form.format(pair[1] * scale)}" if seeds > 1 else mean
