"""The results of a search: trials.csv, with one line per trial, and the best settings as TOML."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedmim.errors import UserError
from fedmim.experiments.search import Search
from fedmim.experiments.toml_values import plain
from fedmim.files import write_text

TRIALS = "trials.csv"


@dataclass(frozen=True)
class Found:
    """The best result of a search so far."""

    settings: dict[str, Any]
    accuracy: float  # on the validation data
    finished: int  # number of trials that have ended


def best_trial(search: Search, path: Path) -> Found | None:
    """The best result in trials.csv; None before the first trial is complete."""
    if not path.is_file():
        return None
    trials = read_trials(path)
    whole = [trial for trial in trials if trial["state"] == "complete"]
    if not whole:
        return None
    best = max(whole, key=lambda trial: (trial["accuracy"], -trial["trial"]))
    if missing := [name for name in search.space if name not in best]:
        raise UserError(f"{path}: has no column {missing[0]}: remove the file, the search rewrites it")
    return Found({name: best[name] for name in search.space}, best["accuracy"], len(trials))


def best_toml(results: Sequence[tuple[Search, Found]]) -> str:
    """The best settings of several methods on one task, as TOML text for --config of `run` and `compare`."""
    config = results[0][0].run.config
    aside = {"validation", "seed", *(name for search, _ in results for name in search.space)}
    common = {k: v for k, v in (plain(config.problem) | plain(config.settings)).items() if k not in aside}
    head = (
        {"method": results[0][0].run.method} if len(results) == 1 else {"methods": [s.run.method for s, _ in results]}
    )
    tables = {
        search.run.method: {k: v for k, v in search.run.hyper_parameters().items() if k not in search.space}
        | found.settings
        for search, found in results
    }
    return tomli_w.dumps({**head, **common, **tables})


def write_trials(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write one line per trial. Values are JSON."""
    text = io.StringIO()
    lines = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    lines.writeheader()
    lines.writerows({name: v if name == "state" else json.dumps(v) for name, v in row.items()} for row in rows)
    write_text(path, text.getvalue())


def read_trials(path: Path) -> list[dict[str, Any]]:
    """Read trials.csv."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            trials = [
                {name: value if name == "state" else json.loads(value) for name, value in row.items()}
                for row in csv.DictReader(file)
            ]
        for trial in trials:
            scored = isinstance(trial["accuracy"], int | float)
            if type(trial["trial"]) is not int or (trial["state"] == "complete" and not scored):
                raise ValueError("a trial has no number or no accuracy")
        return trials
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error}): remove the file, the search rewrites it") from error
