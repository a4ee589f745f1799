"""The page: one HTML file with everything in it, for a set of runs."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from fedmim import __version__
from fedmim.files import write_text
from fedmim.report import wording
from fedmim.report.again import commands
from fedmim.report.charts import charts
from fedmim.report.rows import table
from fedmim.report.sets import Problem
from fedmim.report.skew import skew_of
from fedmim.report.verdict import verdict

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("numbers.js", "charts.js", "page.js")
LIVE_SECONDS = 2


def write_page(problems: Sequence[Problem], path: Path) -> None:
    """Write the page of these problems."""
    write_text(path, page(problems))


def page(problems: Sequence[Problem], live: bool = False) -> str:
    """The whole page. A live one asks its server for news every few seconds."""
    text: str = _template("page.html").render(
        **context(problems),
        style=(ASSETS / "page.css").read_text(encoding="utf-8"),
        script="\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS),
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
        "own_data": problem.config.problem.data != "digits",
        "seeds": max((len(line.seeds) for line in problem.lines), default=1),
    }


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
    """plotly.js, as the package plotly brings it."""
    from plotly.offline import get_plotlyjs

    return pack(unwrapped(get_plotlyjs()))


def unwrapped(script: str) -> str:
    """plotly.js without its wrapper for module loaders, as whose argument browsers read all of it once more."""
    licence, comment, wrapped = script.partition("*/\n")
    _, begin, rest = wrapped.partition("() => {\n")
    body, end, _ = rest.rpartition("return Plotly;\n}));")
    return licence + comment + body if begin and end else script


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
