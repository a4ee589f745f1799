"""The report page: one self-contained HTML file for groups of runs."""

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
from fedmim.data.catalogue import find_descriptor
from fedmim.experiments.methods import is_reference
from fedmim.files import write_text
from fedmim.report.chart_data import chart_data, drawn_labels
from fedmim.report.client_charts import ClientCharts, client_charts
from fedmim.report.run_commands import commands_for
from fedmim.report.skew import Skew, skew_of
from fedmim.report.style import label_styles
from fedmim.report.verdict import verdict
from fedmim.report.wording import group_sentence, group_title
from fedmim.results.grouping import RunGroup
from fedmim.results.metrics import METRICS
from fedmim.results.record_columns import is_timed
from fedmim.results.run_table import run_table

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("numbers.js", "charts.js", "clients.js", "page.js")
LIVE_SECONDS = 2
NAMED = 50  # limit on the list of runs that could not be read


def write_page(groups: Sequence[RunGroup], path: Path, left_out: Sequence[str] = ()) -> None:
    """Write the page of these groups. `left_out` lists what could not be read."""
    write_text(path, page(groups, left_out))


def page(groups: Sequence[RunGroup], left_out: Sequence[str] = (), live: bool = False) -> str:
    """The whole page. A live page asks its server for updates every few seconds."""
    shown, charts = context(groups, left_out)
    text: str = _template("page.html").render(
        **shown,
        style=(ASSETS / "page.css").read_text(encoding="utf-8"),
        script="\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS),
        plotly=_plotly(),
        charts=pack(_json(charts)),
        live=LIVE_SECONDS if live else 0,
    )
    return text


def news(groups: Sequence[RunGroup], left_out: Sequence[str] = ()) -> str:
    """The update of a live page: its text and the data of its charts."""
    shown, charts = context(groups, left_out)
    return _json({"body": _template("body.html").render(**shown), "charts": charts})


def context(groups: Sequence[RunGroup], left_out: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of the templates and the data of the charts."""
    now = datetime.now()
    damaged = list(left_out)
    skews = [skew_of(group, damaged.append) for group in groups]
    clients = [client_charts(group, damaged.append) for group in groups]
    shown = {
        "views": [view(number, group, skews[number], clients[number]) for number, group in enumerate(groups)],
        "left_out": damaged[:NAMED],
        "more_left_out": max(0, len(damaged) - NAMED),
        "overview": accuracy_overview(groups) if len(groups) > 1 else None,
        "made": f"{now.day} {now:%B %Y, %H:%M}",
        "version": __version__,
        "ended": sum(group.count[0] for group in groups),
        "runs": sum(group.count[1] for group in groups),
    }
    return shown, chart_data(groups, skews, clients)


def view(number: int, group: RunGroup, skew: Skew | None, clients: ClientCharts | None) -> dict[str, Any]:
    """The template values of one group."""
    return {
        "number": number,
        "title": group_title(group),
        "sentence": group_sentence(group),
        "cards": verdict(group),
        "styles": label_styles(group.methods),
        "drawn": drawn_labels(group),
        "timed": any(is_timed(run.records) for run in group.runs),
        "skew": skew,
        "clients": clients,
        "table": run_table(group),
        "commands": commands_for(group),
        "looked_for": bool((found := find_descriptor(group.config.problem.data)) and found.folder),
        "seeds": max((len(line.seeds) for line in group.lines), default=1),
    }


def accuracy_overview(groups: Sequence[RunGroup]) -> dict[str, Any]:
    """The mean accuracy of each label in each group, and of which evaluations."""
    methods = {label: method for group in groups for label, method in group.methods.items()}
    labels = sorted(methods, key=lambda label: is_reference(methods[label]))
    columns = [{line.label: line.over_seeds("last_ten_accuracy") for line in group.lines} for group in groups]
    ranked = {line.label for group in groups for line in group.lines if not line.reference}
    found = [[pair[0] for label, pair in column.items() if pair and label in ranked] for column in columns]
    best = [max(values, default=None) for values in found]
    cells = {label: [column.get(label) for column in columns] for label in labels}
    summaries = [summary for group in groups for line in group.lines for summary in line.summaries]
    return {
        "titles": [group_title(group) for group in groups],
        "cells": cells,
        "best": best,
        "meaning": METRICS["last_ten_accuracy"].meaning_for(summaries),
    }


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def pack(text: str) -> str:
    """Compress a text and encode it as base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def _plotly() -> str:
    """plotly.js from the package plotly."""
    from plotly.offline import get_plotlyjs

    return pack(unwrapped(get_plotlyjs()))


def unwrapped(script: str) -> str:
    """plotly.js without its module wrapper. With the wrapper, browsers parse the whole script twice."""
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
    environment.filters["accuracy"] = METRICS["last_ten_accuracy"].number
    return environment.get_template(name)
