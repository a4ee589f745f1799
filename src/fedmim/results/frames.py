"""Runs as pandas DataFrames: one row per round, one row per run, or one row per evaluated client.

Every setting has a column. A hyper-parameter has the name of its flag in `fedmim compare`, for example fedmim.alpha; it
is null for other methods. Lists are text, as in that flag: 0.6,0.3. What has no value is null.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from fedmim.errors import UserError, warn_user
from fedmim.experiments.config import PARTS
from fedmim.experiments.methods import split_name
from fedmim.experiments.metrics_file import HINTS, read_records
from fedmim.experiments.per_client_file import read_client_facts, read_evaluations
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import METRICS as METRICS_FILE
from fedmim.results.grouping import target_for
from fedmim.results.loading import find_runs, load_results
from fedmim.results.method_results import RunResult
from fedmim.results.metrics import METRICS, summarise

if TYPE_CHECKING:
    import pandas

# Fields of a record whose name is also that of a setting. An archive has neither.
RENAMED = {"lr": "round_lr", "clients": "took_part"}
CLIENT_COLUMNS = {
    "method": "string",
    "label": "string",
    "seed": "int64",
    "round": "int64",
    "client": "int64",
    "name": "string",
    "size": "int64",
    "evaluated_on": "string",
    "metric": "float64",
    "personal": "float64",
    "folder": "string",
}


def load_runs(*paths: str | os.PathLike[str]) -> pandas.DataFrame:
    """All rounds of the runs at or below these paths, one row each, with the settings of their runs.

    A path is a run folder, a comparison, the folder of a reproduction, or any folder of such. Runs that cannot be read
    are left out with a warning. `round_lr` is the learning rate of the round (`lr` that of the first), `took_part` the
    number of its clients (`clients` that of all).
    """
    pd, runs = _import_pandas(), _results(paths)
    records = [record for run in runs for record in run.records]
    columns = {
        RENAMED.get(name, name): _series(pd, [_cell(name, record) for record in records], _record_dtype(name))
        for name in HINTS
    }
    of_run = [number for number, run in enumerate(runs) for _ in run.records]
    facts = _facts(pd, runs).take(of_run).reset_index(drop=True)
    return _arranged(pd, facts, columns)


def load_summary(*paths: str | os.PathLike[str], target: float | None = None) -> pandas.DataFrame:
    """The metrics of the runs at or below these paths, one row each, with their settings.

    `target` is the accuracy of rounds_to_target and bytes_to_target; default: that of the comparison or the data set.
    `last_ten_accuracy` is the mean of the last `last_ten_evaluations` evaluations, `consistency` the client drift.
    """
    pd, runs = _import_pandas(), _results(paths)
    targets = [target_for([run]) if target is None else target for run in runs]
    summaries = [summarise(run.records, each) for run, each in zip(runs, targets, strict=True)]
    columns = {
        "rounds_done": _series(pd, [len(run.records) for run in runs], "int64"),
        "finished": _series(pd, [run.finished for run in runs], "bool"),
        "diverged": _series(pd, [run.diverged for run in runs], "bool"),
        "stopped": _series(pd, [run.stopped for run in runs], "string"),
        "target": _series(pd, targets, "float64"),
    }
    for metric in METRICS.values():
        if metric.name not in columns:
            values = [summary[metric.name] for summary in summaries]
            columns[metric.name] = _series(pd, values, "Int64" if metric.whole else "float64")
    return _arranged(pd, _facts(pd, runs), columns)


def load_clients(*paths: str | os.PathLike[str]) -> pandas.DataFrame:
    """The evaluations of each client of the runs at or below these paths that have `per_client`.

    There is one row per run, evaluated round and client. `metric` is that of the global model, `personal` that of the
    model after the client's own local steps; `evaluated_on` says whether on the client's test or training data. `size`
    is its number of training samples. `folder` is that of `load_summary`, which has the settings.
    """
    pd, rows = _import_pandas(), list[tuple[Any, ...]]()
    for run in _results(paths):
        try:
            rows += _client_rows(run)
        except UserError as error:
            warn_user(f"skipped: {error}")
    values = zip(*rows, strict=True) if rows else ([] for _ in CLIENT_COLUMNS)
    columns = zip(CLIENT_COLUMNS.items(), values, strict=True)
    return pd.DataFrame({name: _series(pd, list(each), dtype) for (name, dtype), each in columns})


def _client_rows(run: RunResult) -> list[tuple[Any, ...]]:
    """The rows of one run, with the values of CLIENT_COLUMNS."""
    if (facts := read_client_facts(run.path)) is None:
        return []
    whose, clients = (run.run.method, run.run.label, run.seed), range(len(facts.sizes))
    return [
        (*whose, round, client, facts.name(client), facts.sizes[client], facts.evaluated_on, metric, own, str(run.path))
        for round, model, personal in read_evaluations(run.path)
        for client, metric, own in zip(clients, model, personal or [None] * len(model), strict=True)
    ]


def _results(paths: Sequence[str | os.PathLike[str]]) -> list[RunResult]:
    """The runs at or below the paths, with complete records."""
    if not paths:
        raise UserError("paths: give at least one run folder, comparison folder, or folder that contains them")

    def skipped(message: str) -> None:
        warn_user(f"skipped: {message}")

    folders = find_runs([Path(path) for path in paths], skipped)
    return load_results(folders, skipped, read=lambda folder: list(read_records(folder.path / METRICS_FILE)))


def _facts(pd: ModuleType, runs: Sequence[RunResult]) -> pandas.DataFrame:
    """Method, label, settings, hyper-parameters and folder, one row per run."""
    configs = [run.run.config.flat() for run in runs]
    hints = {name: hint for kind in PARTS.values() for name, hint in get_type_hints(kind).items()}
    own = [_hyper_parameters(run.run) for run in runs]
    columns = {
        "method": _series(pd, [run.run.method for run in runs], "string"),
        "label": _series(pd, [run.run.label for run in runs], "string"),
        **{name: _series(pd, [each[name] for each in configs], _dtype(hint)) for name, hint in hints.items()},
    }
    for name in dict.fromkeys(name for each in own for name in each):
        values = [each.get(name) for each in own]
        columns[name] = _series(pd, values, _dtype_of_values(values))
    columns["folder"] = _series(pd, [str(run.path) for run in runs], "string")
    return pd.DataFrame(columns)


def _hyper_parameters(run: Run) -> dict[str, Any]:
    base = split_name(run.method)[0].rpartition(":")[2]  # of a user's own method, the name of its class
    values = run.hyper_parameter_values()
    return {name if "." in name else f"{base}.{name}": value for name, value in values.items()}


def _arranged(pd: ModuleType, facts: pandas.DataFrame, columns: dict[str, pandas.Series]) -> pandas.DataFrame:
    """First which run it is, then its numbers, then its settings."""
    first = ["method", "label", "seed"]
    return pd.concat([facts[first], pd.DataFrame(columns), facts.drop(columns=first)], axis=1)


def _cell(name: str, record: Mapping[str, Any]) -> Any:
    """A field of a record; the number of clients instead of their ids."""
    value = record.get(name)
    return len(value) if name == "clients" and value is not None else value


def _record_dtype(name: str) -> str:
    """A record of an archive or of an earlier version may lack these fields."""
    return "Int64" if name in ("clients", "failed") else _dtype(HINTS[name])


def _dtype(hint: Any) -> str:
    """The dtype of a field with this type."""
    optional = NoneType in get_args(hint)
    kind = next((each for each in get_args(hint) if each is not NoneType), hint) if optional else hint
    if kind is bool:
        return "boolean" if optional else "bool"
    if kind is int:
        return "Int64" if optional else "int64"
    return "float64" if kind is float else "string"


def _dtype_of_values(values: Sequence[Any]) -> str:
    """The dtype of a hyper-parameter, which other methods do not have."""
    kinds = {type(value) for value in values if value is not None}
    if kinds in ({bool}, {int}):
        return "boolean" if kinds == {bool} else "Int64"
    return "float64" if kinds <= {int, float} else "string"


def _series(pd: ModuleType, values: Sequence[Any], dtype: str) -> pandas.Series:
    if dtype == "string":
        values = [",".join(map(str, each)) if isinstance(each, list | tuple) else each for each in values]
        values = [each if each is None else str(each) for each in values]
    return pd.Series(values, dtype=dtype)


def _import_pandas() -> ModuleType:
    try:
        import pandas
    except ImportError as error:
        raise UserError("load_runs: requires pandas: pip install 'fedmim[pandas]'") from error
    module: ModuleType = pandas
    return module
