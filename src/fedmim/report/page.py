"""The page: one HTML file with everything in it, for a set of runs."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from fedmim import __version__
from fedmim.experiments.config import plain
from fedmim.experiments.runs import RunFolder
from fedmim.files import write_text
from fedmim.report import wording
from fedmim.report.again import commands
from fedmim.report.charts import charts
from fedmim.report.results import Records, Summary, summarise
from fedmim.report.sets import APART, Problem, short
from fedmim.report.skew import skew_of
from fedmim.report.verdict import verdict

ASSETS = Path(__file__).parent / "assets"
LIVE_SECONDS = 2


def write_page(problems: Sequence[Problem], path: Path) -> None:
    """Write the page of these problems."""
    write_text(path, page(problems))


def page(problems: Sequence[Problem], live: bool = False) -> str:
    """The whole page. A live one asks its server for news every few seconds."""
    text: str = _template("page.html").render(
        **context(problems),
        style=(ASSETS / "page.css").read_text(encoding="utf-8"),
        script=(ASSETS / "page.js").read_text(encoding="utf-8"),
        plotly=_plotly(),
        charts=pack(json.dumps(charts(problems), separators=(",", ":"))),
        live=LIVE_SECONDS if live else 0,
    )
    return text


def news(problems: Sequence[Problem]) -> str:
    """What a live page replaces: its text, and the numbers of its charts."""
    text = _template("body.html").render(**context(problems))
    return json.dumps({"body": text, "charts": charts(problems)}, separators=(",", ":"))


def context(problems: Sequence[Problem]) -> dict[str, Any]:
    """What the templates show."""
    return {
        "views": [view(number, problem) for number, problem in enumerate(problems)],
        "overview": overview(problems) if len(problems) > 1 else None,
        "made": _date(datetime.now()),
        "version": __version__,
        "ended": sum(problem.count[0] for problem in problems),
        "runs": sum(problem.count[1] for problem in problems),
    }


def view(number: int, problem: Problem) -> dict[str, Any]:
    """What the template shows of one problem."""
    rows, shared = table(problem)
    return {
        "number": number,
        "title": wording.title(problem),
        "sentence": wording.sentence(problem),
        "cards": verdict(problem),
        "styles": problem.styles,
        "skew": skew_of(problem),
        "target": None if problem.target is None else wording.percent(problem.target),
        "columns": list(rows[0].settings),
        "rows": rows,
        "refusals": any(row.summary.refused for row in rows),
        "shared": shared,
        "commands": commands(problem),
        "own_data": problem.config.data != "digits",
        "seeds": max((len(line.seeds) for line in problem.lines), default=1),
    }


@dataclass(frozen=True)
class Row:
    """One run in the table."""

    label: str
    seed: int
    folder: str
    rounds: str
    settings: dict[str, tuple[str, bool]]  # those that differ: the value, and whether it is unlike most
    summary: Summary


def table(problem: Problem) -> tuple[list[Row], dict[str, str]]:
    """A row for each run, and the settings that all share."""
    runs: list[tuple[RunFolder, Records]] = []
    for method in problem.lines + problem.behind:
        for folder, seed, records in zip(method.folders, method.seeds, method.records, strict=True):
            runs.append((RunFolder(folder, method.run.with_seed(seed)), records))
    runs += [(folder, []) for folder in problem.waiting]
    place = {label: number for number, label in enumerate(problem.styles)}
    runs.sort(key=lambda pair: (place[pair[0].run.label], pair[0].run.config.seed))
    values = [_settings(folder) for folder, _ in runs]
    names = dict.fromkeys(name for each in values for name in each)
    usual = {name: Counter(each[name] for each in values if name in each).most_common(1)[0][0] for name in names}
    differ = [name for name in names if any(each.get(name, usual[name]) != usual[name] for each in values)]
    rows = [
        Row(
            label=folder.run.label,
            seed=folder.run.config.seed,
            folder=folder.path.name,
            rounds=f"{len(records)}" + (f" of {total}" if len(records) < (total := folder.run.config.rounds) else ""),
            settings={name: (each.get(name, ""), each.get(name, usual[name]) != usual[name]) for name in differ},
            summary=summarise(records, problem.target),
        )
        for (folder, records), each in zip(runs, values, strict=True)
    ]
    return rows, {name: value for name, value in usual.items() if name not in differ}


def _settings(folder: RunFolder) -> dict[str, str]:
    """All that a run was asked to do, hyper-parameters as in the flags of `fedmim compare`: fedmim.alpha."""
    run = folder.run
    config = {name: value for name, value in plain(run.config).items() if name not in APART}
    own = {f"{run.method.rpartition(':')[2]}.{name}": value for name, value in plain(run.algorithm).items()}
    return {name: short(value) for name, value in (config | own).items()}


def overview(problems: Sequence[Problem]) -> dict[str, Any]:
    """Accuracy of each label on each problem: the mean of the last ten evaluations."""
    labels = dict.fromkeys(label for problem in problems for label in problem.styles)
    columns = [{line.label: line.over_seeds("last_ten_accuracy") for line in problem.lines} for problem in problems]
    best = [max((pair[0] for pair in column.values() if pair), default=None) for column in columns]
    cells = {label: [column.get(label) for column in columns] for label in labels}
    return {"titles": [wording.title(problem) for problem in problems], "cells": cells, "best": best}


def pack(text: str) -> str:
    """A text as the page carries it: compressed, in letters."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def _plotly() -> str:
    """plotly.js, its bundle for lines and heat maps: a third of the whole, so that a page opens at once."""
    return pack((ASSETS / "plotly.min.js").read_text(encoding="utf-8"))


def _template(name: str) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": _percent, "size": wording.size, "duration": wording.duration}
    return environment.get_template(name)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _date(now: datetime) -> str:
    return f"{now.day} {now:%B %Y, %H:%M}"
