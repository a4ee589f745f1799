"""The tables in the paper's layout, the paper's own numbers beside the measured ones: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from fedmim.data.catalogue import find_descriptor
from fedmim.experiments.toml_values import plain
from fedmim.files import write_text
from fedmim.reproduction.entries import Reached, Spread, TableEntry
from fedmim.reproduction.experiment import PaperExperiment
from fedmim.reproduction.grid import shared_settings
from fedmim.reproduction.paper_numbers import PaperNumbers
from fedmim.reproduction.scale import Scale

FAIR = {"common": "common rate", "own": "own best"}
BEHIND = (
    "Behind: how far the last ten are behind the best row of the same way of being fair, as a mean and in each of the "
    "seeds, within which all rows have the same split and the same clients in each round."
)


class Layout:
    """The entries of an experiment by place, with what is best in each column."""

    def __init__(self, experiment: PaperExperiment, entries: Sequence[TableEntry]) -> None:
        self.experiment = experiment
        self.numbers = PaperNumbers.read(experiment)
        self.entries = entries
        self.found = {(e.cell.data, e.cell.column.label, e.cell.row.label, e.cell.fair): e for e in entries}
        self.data = [data for data in experiment.data if any(key[0] == data for key in self.found)]
        self.columns = [c.label for c in experiment.columns if any(key[1] == c.label for key in self.found)]
        self.rows = [row.label for row in experiment.rows if any(key[2] == row.label for key in self.found)]
        self.fair = [fair for fair in experiment.fair if any(key[3] == fair for key in self.found)]
        self.with_paper = any(self.value(*key[:3], "paper") for key in self.found)
        self.lower_is_better = experiment.figure == "consistency"

    @property
    def subcolumns(self) -> list[str]:
        """What each column has: a way of being fair, or the paper."""
        return [*self.fair, *(["paper"] if self.with_paper else [])]

    @property
    def one_way(self) -> bool:
        """Whether there is one number in each place, which needs no name."""
        return len(self.experiment.fair) == 1 and not self.with_paper

    def head(self, column: str, sub: str, between: str) -> str:
        """What stands above the numbers of a subcolumn."""
        return column if self.one_way else f"{column}{between}{FAIR.get(sub, sub)}"

    def value(self, data: str, column: str, row: str, sub: str) -> Spread | None:
        """The number in a place."""
        if sub != "paper":
            entry = self.found.get((data, column, row, sub))
            return entry.main if entry else None
        paper = self.numbers.at(data, row, column)
        return None if paper is None else (paper, 0.0)

    def is_best(self, data: str, column: str, row: str, sub: str) -> bool:
        """Whether no other row has a better number there, as it is shown."""
        shown = [self.shown(value) for each in self.rows if (value := self.value(data, column, each, sub))]
        own = self.value(data, column, row, sub)
        pick = min if self.lower_is_better else max
        return own is not None and len(shown) > 1 and float(self.shown(own)) == pick(map(float, shown))

    def shown(self, value: Spread) -> str:
        """The mean as text."""
        return f"{value[0]:.3g}" if self.lower_is_better else f"{value[0]:.2f}"

    def with_spread(self, value: Spread, seeds: int, plus_minus: str) -> str:
        """Mean and standard deviation as text."""
        if seeds < 2:
            return self.shown(value)
        return f"{self.shown(value)}{plus_minus}{self.shown((value[1], 0.0))}"

    def seeds(self, data: str, column: str, row: str, sub: str) -> int:
        """How many seeds a place has; none for the paper's."""
        entry = self.found.get((data, column, row, sub))
        return entry.seeds if entry else 0


def write_tables(experiment: PaperExperiment, scale: Scale, entries: Sequence[TableEntry], folder: Path) -> list[Path]:
    """NAME.md, NAME.csv and NAME.tex."""
    layout = Layout(experiment, entries)
    texts = {"md": markdown(layout, scale), "csv": comma_separated(layout), "tex": latex(layout, scale)}
    paths = []
    for ending, text in texts.items():
        paths.append(folder / f"{experiment.name}.{ending}")
        write_text(paths[-1], text)
    return paths


def markdown(layout: Layout, scale: Scale) -> str:
    """The table with its notes, then for each data set and column what else the runs show."""
    settings = ", ".join(f"{name} {value}" for name, value in shared_settings(layout.experiment, scale).items())
    parts = [
        f"# {layout.experiment.title}",
        legend(layout),
        f"`fedmim reproduce {layout.experiment.name} --scale {scale.name}`. Settings, unless said: {settings}.",
    ]
    for heading, notes in (("Shrunk", scale.shrunk), ("Assumed", (*layout.experiment.assumed, *scale.assumed))):
        if notes:
            parts.append("\n".join([f"{heading}:", "", *(f"- {note}" for note in notes)]))
    for data in layout.data:
        parts += [f"## {title(data)}", main_table(layout, data)]
    parts.append(BEHIND)
    for data in layout.data:
        for column in layout.columns:
            if lines := details(layout, data, column):
                heading = title(data) if len(layout.experiment.columns) == 1 else f"{title(data)}, {column}"
                parts += [f"### {heading} in detail", lines]
    return "\n\n".join(parts) + "\n"


def legend(layout: Layout) -> str:
    """What the numbers are."""
    counts = sorted({entry.seeds for entry in layout.entries})
    seeds = " to ".join(map(str, counts[:: max(1, len(counts) - 1)]))
    figure = "Test accuracy in %, mean of the last ten evaluations"
    if layout.lower_is_better:
        figure = "Mean over the last ten rounds, smaller is better"
    parts = [f"{figure}; {seeds} seed{'s' * (counts[-1:] != [1])}{', ± standard deviation' * (counts[-1:] != [1])}."]
    if "own" in layout.fair:
        parts.append(
            "Common rate: all methods at the paper's rate and settings. Own best: each at the settings that a search "
            "on held-out training data found best for it (`fedmim tune`)."
        )
    if layout.with_paper:
        parts.append("Paper: as printed there, at its own scale.")
    return " ".join([*parts, "The best of a column in bold."])


def main_table(layout: Layout, data: str) -> str:
    """Rows are methods; each of the paper's columns has its ways of being fair, and the paper's number."""
    subs = layout.subcolumns
    head = [layout.experiment.row_title.replace("|", "\\|")]
    for column in layout.columns:
        head += [layout.head(column, sub, "<br>") for sub in subs]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in layout.rows:
        line = [row.replace("|", "\\|")]
        for column in layout.columns:
            for sub in subs:
                value = layout.value(data, column, row, sub)
                text = "-"
                if value is not None:
                    text = layout.with_spread(value, layout.seeds(data, column, row, sub), " ± ")
                    text = f"**{text}**" if layout.is_best(data, column, row, sub) else text
                line.append(text)
        lines.append(line)
    return table(lines)


def terminal(layout: Layout, data: str) -> Table:
    """The same on a terminal."""
    made = Table(title=title(data), title_justify="left", header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    made.add_column(layout.experiment.row_title)
    for column in layout.columns:
        for sub in layout.subcolumns:
            style = "dim" if sub == "paper" else ""
            made.add_column(layout.head(column, sub, "\n"), justify="right", no_wrap=True, style=style)
    for row in layout.rows:
        cells = [Text(row)]
        for column in layout.columns:
            for sub in layout.subcolumns:
                value = layout.value(data, column, row, sub)
                seeds = layout.seeds(data, column, row, sub)
                text = "-" if value is None else layout.with_spread(value, seeds, " ± ")
                cells.append(Text(text, style="bold" if layout.is_best(data, column, row, sub) else ""))
        made.add_row(*cells)
    return made


def details(layout: Layout, data: str, column: str) -> str:
    """Last ten, best, consistency, rounds and bytes to each accuracy, and at which settings."""
    chosen = [
        entry for row in layout.rows for fair in layout.fair if (entry := layout.found.get((data, column, row, fair)))
    ]
    if not chosen:
        return ""
    targets = [reached.target for reached in chosen[0].reached]
    names = [layout.experiment.row_title.replace("|", "\\|"), *([] if layout.one_way else [""]), "settings"]
    head = [*names, "last ten", "behind", "best", "consistency"]
    head += [f"rounds to {target:.0%}" for target in targets] + [f"MB to {target:.0%}" for target in targets]
    lines = [head, [*["---"] * len(names), *["---:"] * (len(head) - len(names))]]
    for entry in chosen:
        fair = [] if layout.one_way else [FAIR[entry.cell.fair]]
        cells = [entry.cell.row.label.replace("|", "\\|"), *fair, settings_of(entry)]
        rivals = [other for other in chosen if other.cell.fair == entry.cell.fair]
        cells += [accuracy(entry, "last_ten_accuracy"), behind(entry, rivals), accuracy(entry, "best_accuracy")]
        cells.append(f"{entry.figures['consistency'][0]:.2g}" if "consistency" in entry.figures else "-")
        cells += [reached_text(reached, reached.rounds, 1, entry.seeds) for reached in entry.reached]
        cells += [reached_text(reached, reached.bytes, 1e-6, entry.seeds) for reached in entry.reached]
        lines.append(cells)
    return table(lines)


def settings_of(entry: TableEntry) -> str:
    """The rate, what the row sets for itself, and what the method has of its own."""
    run = entry.cell.runs[0]
    own = {name: value for name, value in run.config.flat().items() if name in entry.cell.row.settings}
    values = {"lr": run.config.settings.lr, "server_lr": run.config.settings.server_lr, **own, **plain(run.algorithm)}
    values.pop("history", None)
    shown = {name: ", ".join(map(str, v)) or "-" if isinstance(v, list | tuple) else v for name, v in values.items()}
    return "; ".join(f"{name} {value}" for name, value in shown.items() if value is not None)


def accuracy(entry: TableEntry, figure: str) -> str:
    """An accuracy in % with its standard deviation."""
    value = entry.percent(figure)
    if value is None:
        return "-"
    return f"{value[0]:.2f} ± {value[1]:.2f}" if entry.seeds > 1 else f"{value[0]:.2f}"


def behind(entry: TableEntry, rivals: Sequence[TableEntry]) -> str:
    """How far it is behind the best of the rivals: the mean, and in each seed, whose clients all rows share."""
    figure = "last_ten_accuracy"
    ahead, own = max(rivals, key=lambda each: each.figures.get(figure, (0, 0))).by_seed(figure), entry.by_seed(figure)
    gaps = [ahead[seed] - own[seed] for seed in sorted(ahead.keys() & own.keys())]
    if not any(gaps):  # the best itself, or one that has no seed in common with it
        return "-"
    each = f" ({', '.join(f'{gap:.2f}' for gap in gaps)})" if len(gaps) > 1 else ""
    return f"{statistics.fmean(gaps):.2f}{each}"


def reached_text(reached: Reached, value: Spread | None, scale: float, seeds: int) -> str:
    """Rounds or bytes to an accuracy, or how many seeds never reached it."""
    if value is not None:
        return f"{value[0] * scale:.0f}"
    return "never" if reached.missed == seeds else f"{reached.missed} of {seeds} never"


def table(lines: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def comma_separated(layout: Layout) -> str:
    """A line for each place: all figures, and the settings that gave them."""
    rows = []
    for entry in layout.entries:
        cell, run = entry.cell, entry.cell.runs[0]
        paper = layout.value(cell.data, cell.column.label, cell.row.label, "paper")
        row: dict[str, object] = {
            "data": cell.data,
            "column": cell.column.label,
            "row": cell.row.label,
            "method": run.method,
            "fair": cell.fair,
            "seeds": entry.seeds,
            "lr": run.config.settings.lr,
            "rounds": run.config.settings.rounds,
            "hyper_parameters": "; ".join(f"{name}={value}" for name, value in plain(run.algorithm).items()),
            "paper": "" if paper is None else paper[0] / 100,
        }
        for name, (mean, deviation) in entry.figures.items():
            row[name], row[f"{name}_std"] = f"{mean:.6g}", f"{deviation:.6g}"
        for reached in entry.reached:
            for what, value in (("rounds", reached.rounds), ("bytes", reached.bytes)):
                row[f"{what}_to_{reached.target:g}"] = "" if value is None else f"{value[0]:.6g}"
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    lines = csv.DictWriter(text, names, restval="", lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)
    return text.getvalue()


def latex(layout: Layout, scale: Scale) -> str:
    """A booktabs table: the data sets below each other, the paper's columns side by side."""
    subs = layout.subcolumns
    width = 1 + len(layout.columns) * len(subs)
    caption = f"{layout.experiment.title}. Scale {scale.name}. {legend(layout)}".replace("`", "")
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape(caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        *latex_head(layout),
    ]
    for data in layout.data:
        lines += [r"\midrule", rf"\multicolumn{{{width}}}{{c}}{{{escape(title(data))}}} \\", r"\midrule"]
        for row in layout.rows:
            line = [escape(row)]
            line += [latex_cell(layout, data, column, row, sub) for column in layout.columns for sub in subs]
            lines.append(" & ".join(line) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def latex_head(layout: Layout) -> list[str]:
    """The columns, and below them, where there are several, what each has."""
    subs, places = layout.subcolumns, range(len(layout.columns))
    row_title, columns = escape(layout.experiment.row_title), [escape(column) for column in layout.columns]
    if layout.one_way:
        return [" & ".join([row_title, *columns]) + r" \\"]
    groups = [rf"\multicolumn{{{len(subs)}}}{{c}}{{{column}}}" for column in columns]
    rules = [rf"\cmidrule(lr){{{2 + place * len(subs)}-{1 + (place + 1) * len(subs)}}}" for place in places]
    names = {"common": "common", "own": "own best", "paper": "paper"}
    below = [row_title, *[names[sub] for sub in subs] * len(columns)]
    return [" & ".join(["", *groups]) + r" \\", " ".join(rules), " & ".join(below) + r" \\"]


def latex_cell(layout: Layout, data: str, column: str, row: str, sub: str) -> str:
    """One number, the best in bold, its deviation small behind it."""
    value = layout.value(data, column, row, sub)
    if value is None:
        return "--"
    mean = layout.shown(value)
    mean = rf"\textbf{{{mean}}}" if layout.is_best(data, column, row, sub) else mean
    if layout.seeds(data, column, row, sub) < 2:
        return mean
    return rf"{mean}{{\scriptsize$\,\pm\,${layout.shown((value[1], 0.0))}}}"


def escape(text: str) -> str:
    """Text as LaTeX takes it."""
    for letter, written in (
        ("%", r"\%"),
        ("_", r"\_"),
        ("|", r"$|$"),
        ("±", r"$\pm$"),
        ("α₁", r"$\alpha_1$"),
        ("α₂", r"$\alpha_2$"),
        ("β₁", r"$\beta_1$"),
        ("β₂", r"$\beta_2$"),
    ):
        text = text.replace(letter, written)
    return text


def title(data: str) -> str:
    """A data set as the paper calls it."""
    descriptor = find_descriptor(data)
    return descriptor.title or data if descriptor else data
