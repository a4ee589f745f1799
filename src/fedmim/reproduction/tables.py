"""The tables in the layout of the paper, with the paper's numbers: as Markdown, as CSV and on the terminal."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from fedmim.experiments.toml_values import plain_value
from fedmim.files import write_text
from fedmim.reproduction.latex_table import latex_table
from fedmim.reproduction.layout import FAIR_TITLES, Layout, TableEntry, data_title, legend_text, place_title
from fedmim.reproduction.plan import shared_settings
from fedmim.reproduction.ranks import rank_text, ranked_rows, seeds_csv
from fedmim.reproduction.scale import Scale
from fedmim.results.metrics import METRICS, Metric, averaged, shown_metrics

CSV_FIRST = ("last_ten_accuracy", "last_ten_evaluations", "best_accuracy")  # the first metrics of a CSV file
BEHIND = (
    "Behind: how many points the mean accuracy is below that of the best row with the same kind of settings (shared or "
    "tuned). The values in brackets are those of the seeds. For one seed, all rows use the same "
    "split and the same clients in every round."
)

RANKS = (
    "In each block (a data set, a column and a seed) the rows are ranked by accuracy. Behind: points behind the row "
    "with the best mean rank, on average over the blocks. Two tests against that row, both with Holm's correction: "
    "p (seeds) is Wilcoxon's signed-rank test over all blocks: could the seeds alone explain the difference in these "
    "settings? p (settings) is the paired t-test over the columns, each the mean over its seeds: is a difference to be "
    "expected in another such setting? The blocks of a column share their tuned settings, so p (seeds) is too small "
    "for that. The columns share data, model and some trials of the searches, so p (settings) is too small for other "
    "tasks."
)


def write_tables(layout: Layout, scale: Scale, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.csv and NAME.tex."""
    texts = {"md": markdown(layout, scale), "csv": comma_separated(layout), "tex": latex_table(layout, scale)}
    paths = {folder / f"{layout.experiment.name}.{ending}": text for ending, text in texts.items()}
    if layout.experiment.plot_against == "ranks":
        paths[folder / f"{layout.experiment.name}-seeds.csv"] = seeds_csv(layout)
    for path, text in paths.items():
        write_text(path, text)
    return list(paths)


def terminal_table(layout: Layout, data: str) -> Table:
    """The table of a data set on the terminal."""
    table = Table(
        title=data_title(data), title_justify="left", header_style="bold", pad_edge=False, box=None, padding=(0, 1)
    )
    table.add_column(layout.experiment.row_title, no_wrap=True)
    styles = ["dim" if sub == "paper" else "" for sub in layout.subcolumns] * len(layout.columns)
    for head, style in zip(layout.heads("\n"), styles, strict=True):
        table.add_column(head, justify="right", no_wrap=True, style=style)
    for row in layout.rows:
        numbers = layout.numbers(data, row)
        table.add_row(Text(row), *(Text(str(n or "-"), style="bold" if n and n.best else "") for n in numbers))
    return table


def markdown(layout: Layout, scale: Scale) -> str:
    """The table with its notes, then the details of each data set and column."""
    parts = [
        f"# {layout.experiment.title}",
        legend_text(layout),
        f"`fedmim reproduce {layout.experiment.name} --scale {scale.name}`. Settings: {settings_line(layout, scale)}.",
    ]
    assumed = (*layout.experiment.assumed, *scale.assumed)
    for heading, notes in (
        ("Smaller than in the paper", scale.shrunk),
        ("Assumed where the paper gives no details", assumed),
    ):
        if notes:
            parts.append("\n".join([f"{heading}:", "", *(f"- {note}" for note in notes)]))
    if layout.experiment.plot_against == "ranks" and (ranks := _rank_table(layout)):
        parts += ["## Ranks", RANKS, ranks]
    for data in layout.data:
        parts += [f"## {data_title(data)}", _main_table(layout, data)]
    parts.append(BEHIND)
    for data in layout.data:
        for column in layout.columns:
            if lines := _details(layout, data, column):
                parts += [f"### {place_title(layout.experiment, data, column)} in detail", lines]
    return "\n\n".join(parts) + "\n"


def settings_line(layout: Layout, scale: Scale) -> str:
    """The settings of the runs in the table; a setting that differs between columns with its values in each.

    Settings that a column or row is about are in its heading, and those that a search has found are in the details.
    """
    entries = [entry for entry in layout.entries if entry.cell.fair == "common"] or layout.entries
    parts = []
    for name in shared_settings(layout.experiment, scale):
        columns: dict[str, set[str]] = {}  # the values in each column
        for entry in entries:
            if name not in entry.cell.column.settings | entry.cell.row.settings:
                value = str(plain_value(entry.results.run.config.flat()[name]))
                columns.setdefault(entry.cell.column.label, set()).add(value)
        values = {label: next(iter(found)) for label, found in columns.items() if len(found) == 1}
        if len(set(values.values())) == 1:
            parts.append(f"{name} {next(iter(values.values()))}")
        elif values:
            parts.append(f"{name} " + ", ".join(f"{value} ({label})" for label, value in values.items()))
    return ", ".join(parts)


def _main_table(layout: Layout, data: str) -> str:
    """The main table: one row per method, with the subcolumns of each column."""
    lines = [[layout.experiment.row_title, *layout.heads("<br>")]]
    for row in layout.rows:
        numbers = layout.numbers(data, row)
        lines.append([row, *(f"**{number}**" if number and number.best else str(number or "-") for number in numbers)])
    return _markdown_table(lines, texts=1)


def _rank_table(layout: Layout) -> str:
    """The rows by mean rank."""
    ranked = ranked_rows(layout)
    if not ranked:
        return ""
    lines = [[layout.experiment.row_title, "mean rank", "best in", "behind", "p (seeds)", "p (settings)"]]
    for row in ranked:
        first = sum(rank == 1 for rank in row.ranks.values())
        tests = rank_text(row.p_seeds), rank_text(row.p_settings)
        lines.append([row.label, f"{row.mean:.2f}", f"{first} of {len(row.ranks)}", f"{row.behind:.2f}", *tests])
    columns: dict[str, list[str]] = {}
    for data, column in ranked[0].by_column():
        columns.setdefault(data_title(data), []).append(column)
    places = "; ".join(f"{data}: {', '.join(labels)}" for data, labels in columns.items())
    part = f"Ranked is the largest part of the table without gaps: {len(ranked)} rows in {len(ranked[0].ranks)} blocks"
    return f"{part} ({places}).\n\n{_markdown_table(lines, texts=1)}"


def _details(layout: Layout, data: str, column: str) -> str:
    """The settings and metrics of each entry, and the rounds and bytes to each target accuracy."""
    places = [(data, column, row, fair) for row in layout.rows for fair in layout.fair]
    chosen = [layout.found[place] for place in places if place in layout.found]
    if not chosen:
        return ""
    targets = chosen[0].targets
    first, *others = [metric for metric in METRICS.values() if metric.detail_heading and not metric.to_target]
    to_target = [(m, target) for m in METRICS.values() if m.detail_heading and m.to_target for target in targets]
    names = [layout.experiment.row_title, *([] if layout.one_way else [""]), "settings"]
    evaluations = averaged([summary for entry in chosen for summary in entry.results.summaries])
    headings = [metric.heading_of("detail", None, evaluations) for metric in (first, *others)]
    head = [*names, headings[0], "behind", *headings[1:]]
    lines = [head + [metric.heading_of("detail", target) for metric, target in to_target]]
    for entry in chosen:
        results = entry.results
        rivals = [other for other in chosen if other.cell.fair == entry.cell.fair and not other.results.reference]
        line = [entry.cell.row.label, *([] if layout.one_way else [FAIR_TITLES[entry.cell.fair]]), settings_text(entry)]
        line += [results.text(first.name), behind(entry, rivals), *(results.text(metric.name) for metric in others)]
        line += [results.at_target(target).text(metric.name) for metric, target in to_target]
        lines.append(line)
    return _markdown_table(lines, texts=len(names))


def settings_text(entry: TableEntry) -> str:
    """The learning rate, the settings of the row, and the hyper-parameters of the method."""
    run = entry.results.run
    own = {name: value for name, value in run.config.flat().items() if name in entry.cell.row.settings}
    values = {"lr": run.config.settings.lr, "server_lr": run.config.settings.server_lr, **own, **run.hyper_parameters()}
    values.pop("history", None)
    shown = {name: ", ".join(map(str, v)) or "-" if isinstance(v, list | tuple) else v for name, v in values.items()}
    return "; ".join(f"{name} {value}" for name, value in shown.items() if value is not None)


def behind(entry: TableEntry, rivals: Sequence[TableEntry]) -> str:
    """The gap to the best of the rivals in points: the mean, and in brackets each seed. References have none."""
    if entry not in rivals:
        return "-"
    name = "last_ten_accuracy"
    best = max(rivals, key=lambda each: each.results.over_seeds(name) or (0, 0))
    ahead, own = best.by_seed(name), entry.by_seed(name)
    gaps = [ahead[seed] - own[seed] for seed in sorted(ahead.keys() & own.keys())]
    if not any(gaps):  # the best itself, or no common seed
        return "-"
    each = f" ({', '.join(f'{gap:.2f}' for gap in gaps)})" if len(gaps) > 1 else ""
    return f"{statistics.fmean(gaps):.2f}{each}"


def _markdown_table(lines: Sequence[Sequence[str]], texts: int) -> str:
    """A Markdown table. The first line is the heading; the first `texts` columns are text, the others numbers."""
    head, *rows = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows])


def comma_separated(layout: Layout) -> str:
    """One line per entry: its settings and all metrics."""
    shown = shown_metrics([summary for entry in layout.entries for summary in entry.results.summaries])
    metrics = [METRICS[name] for name in CSV_FIRST] + [metric for metric in shown if metric.name not in CSV_FIRST]
    rows = [_csv_row(layout, entry, metrics) for entry in layout.entries]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    lines = csv.DictWriter(text, names, restval="", lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)
    return text.getvalue()


def _csv_row(layout: Layout, entry: TableEntry, metrics: Sequence[Metric]) -> dict[str, object]:
    cell, run = entry.cell, entry.results.run
    paper = layout.paper.get((cell.data, cell.row.label, cell.column.label))
    own = {"server_lr": run.config.settings.server_lr, **run.hyper_parameters()}
    row: dict[str, object] = {
        "data": cell.data,
        "column": cell.column.label,
        "row": cell.row.label,
        "method": run.method,
        "fair": cell.fair,
        "seeds": len(entry.results.runs),
        "lr": run.config.settings.lr,
        "rounds": run.config.settings.rounds,
        "hyper_parameters": "; ".join(f"{name}={value}" for name, value in own.items() if value is not None),
        "paper": "" if paper is None else paper / 100,
    }
    for metric in metrics:
        if not metric.to_target and (pair := entry.results.over_seeds(metric.name)):
            row[metric.name], row[f"{metric.name}_std"] = f"{pair[0]:.6g}", f"{pair[1]:.6g}"
    for target in entry.targets:
        for metric in metrics:
            if metric.to_target:
                pair = entry.results.at_target(target).over_seeds(metric.name)
                row[metric.name.replace("target", f"{target:g}")] = f"{pair[0]:.6g}" if pair else ""
    return row
