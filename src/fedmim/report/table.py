"""The table of a comparison on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedmim.report.results import Method
from fedmim.report.style import styles


def comparison_table(methods: Sequence[Method], target: float | None) -> Table:
    """Final and best accuracy, rounds to the target, consistency, bytes and seconds; the best accuracy in bold."""
    table = Table(title_justify="left", header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    table.add_column("")
    for heading in ("final", "last 10", "best"):
        table.add_column(heading, justify="right")
    if target is not None:
        table.add_column(f"to {target:.0%}", justify="right")
    for heading in ("consistency", "MB up", "MB down", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    if any(summary.refused for method in methods for summary in method.summaries):
        table.add_column("refused", justify="right")
    best = {figure: _best(methods, figure) for figure in ("final_accuracy", "last_ten_accuracy", "best_accuracy")}
    for method, style in zip(methods, styles(method.run.method for method in methods), strict=True):
        cells = [Text(method.label, style=style.colour)]
        cells += [_accuracy(method, figure, best[figure]) for figure in best]
        if target is not None:
            cells.append(_rounds(method))
        cells.append(_number(method, "consistency", "{:.2g}"))
        cells += [_number(method, figure, "{:.4g}", 1e-6) for figure in ("bytes_up", "bytes_down")]
        cells.append(_number(method, "seconds", "{:.1f}"))
        if len(table.columns) > len(cells):
            cells.append(Text(str(sum(summary.refused for summary in method.summaries))))
        table.add_row(*cells)
    return table


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
