"""The tables as LaTeX, with booktabs."""

from __future__ import annotations

from fedmim.reproduction.layout import Layout, TableNumber, data_title, legend_text
from fedmim.reproduction.scale import Scale

SUBCOLUMNS = {"common": "shared", "own": "tuned", "paper": "paper"}
WRITTEN = {
    "%": r"\%",
    "_": r"\_",
    "|": r"$|$",
    "±": r"$\pm$",
    "α₁": r"$\alpha_1$",
    "α₂": r"$\alpha_2$",
    "β₁": r"$\beta_1$",
    "β₂": r"$\beta_2$",
}


def latex_table(layout: Layout, scale: Scale) -> str:
    """One table: data sets below each other, columns side by side."""
    width = 1 + len(layout.columns) * len(layout.subcolumns)
    caption = f"{layout.experiment.title}. Scale {scale.name}. {legend_text(layout)}".replace("`", "")
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{_escaped(caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        *_head(layout),
    ]
    for data in layout.data:
        lines += [r"\midrule", rf"\multicolumn{{{width}}}{{c}}{{{_escaped(data_title(data))}}} \\", r"\midrule"]
        for row in layout.rows:
            lines.append(" & ".join([_escaped(row), *map(_cell, layout.numbers(data, row))]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def _head(layout: Layout) -> list[str]:
    """The heading: the columns and, if there are several, their subcolumns."""
    subs, places = layout.subcolumns, range(len(layout.columns))
    row_title, columns = _escaped(layout.experiment.row_title), [_escaped(column) for column in layout.columns]
    if layout.one_way:
        return [" & ".join([row_title, *columns]) + r" \\"]
    groups = [rf"\multicolumn{{{len(subs)}}}{{c}}{{{column}}}" for column in columns]
    rules = [rf"\cmidrule(lr){{{2 + place * len(subs)}-{1 + (place + 1) * len(subs)}}}" for place in places]
    below = [row_title, *[SUBCOLUMNS[sub] for sub in subs] * len(columns)]
    return [" & ".join(["", *groups]) + r" \\", " ".join(rules), " & ".join(below) + r" \\"]


def _cell(number: TableNumber | None) -> str:
    """One number with its standard deviation; the best is bold."""
    if number is None:
        return "--"
    mean = rf"\textbf{{{number.mean}}}" if number.best else number.mean
    return rf"{mean}{{\scriptsize$\,\pm\,${number.deviation}}}" if number.deviation else mean


def _escaped(text: str) -> str:
    for letter, written in WRITTEN.items():
        text = text.replace(letter, written)
    return text
