"""`fedmim.tune`: `fedmim tune` for a method and a task in Python. It writes the same folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fedmim.algorithms import Algorithm
from fedmim.commands.output import Output
from fedmim.commands.training import check_runs
from fedmim.comparing import task_in_memory
from fedmim.display import html_table
from fedmim.errors import check_type
from fedmim.experiments.config import Config
from fedmim.experiments.job_count import check_jobs
from fedmim.experiments.methods import method_name
from fedmim.experiments.run import Run
from fedmim.experiments.search import Range, Search, space_of
from fedmim.experiments.search_results import TRIALS, read_trials
from fedmim.experiments.toml_values import make
from fedmim.experiments.trial_work import check_accuracy
from fedmim.experiments.tune import Tuner
from fedmim.experiments.works import ThisProcess
from fedmim.reproduction.plan import trials_left
from fedmim.simulation.settings import Execution, Settings
from fedmim.simulation.task import METHOD, Task, check_arguments

SHOWN_TRIALS = 10  # in a notebook


@dataclass(frozen=True, repr=False)
class TuneResults:
    """The best settings of a search. It prints as a summary, in notebooks as a table of the best trials."""

    algorithm: Algorithm
    """The method with the best hyper-parameters."""
    settings: Settings
    """The settings with the best values."""
    accuracy: float
    """On the held-out training data."""
    values: dict[str, Any]
    """The best value of each setting that was searched."""
    trials: list[dict[str, Any]]
    """All trials: number, state, rounds, accuracy and values."""
    folder: Path | None
    """The folder of the search; None if nothing was kept."""

    def __repr__(self) -> str:
        best = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return (
            f"TuneResults({self.algorithm.title}, {best}: accuracy {100 * self.accuracy:.2f} % on held-out data, "
            f"best of {len(self.trials)} trials)"
        )

    def _repr_html_(self) -> str:
        trials = sorted(self.trials, key=lambda trial: (trial["state"] != "complete", -(trial["accuracy"] or 0.0)))
        rows = [{**each, "accuracy": _percent(each["accuracy"])} for each in trials[:SHOWN_TRIALS]]
        return html_table(list(rows[0]), [list(row.values()) for row in rows])


def tune(
    method: Algorithm,
    task: Task,
    settings: Settings | None = None,
    *,
    trials: int = 20,
    space: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None = None,
    validation: float = 0.1,
    out: str | os.PathLike[str] | None = None,
    execution: Execution | None = None,
    jobs: int = 1,
    progress: bool = True,
) -> TuneResults:
    """Search the learning rate and hyper-parameters of a method with Optuna, on held-out training data of a task.

    `space` has a range for each setting, as in the TOML file of --space, {"lr": {"low": 0.01, "high": 1, "log": True}},
    or is the path of such a file; default: the built-in ranges of the method. The search starts from the given
    settings. The fraction `validation` of the clients' training samples is held out. If `out` has an interrupted
    search, it is resumed. `jobs` is the number of trials at once; the trials depend on it.
    """
    check_type("method", method, Algorithm, METHOD)
    check_arguments(task, settings, execution)
    check_jobs(jobs)
    name = method_name(method)
    with ExitStack() as stack:
        problem = stack.enter_context(task_in_memory(task, validation))
        run = Run(name, method, Config(problem, settings or Settings(), execution or Execution()), method.title)
        search = Search(run, _space(name, space), trials)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedmim-")) if out is None else out)
        _search(Tuner(search, folder, at_once=jobs), jobs, progress, draw=out is not None)
        found = Tuner(search, folder).found()
        assert found is not None  # `_search` raises otherwise
        best = search.with_values(found.settings)
        rows = read_trials(folder / TRIALS)
    kept = None if out is None else folder
    return TuneResults(best.algorithm, best.config.settings, found.accuracy, found.settings, rows, kept)


def _percent(accuracy: float | None) -> str:
    return "" if accuracy is None else f"{100 * accuracy:.2f} %"


def _search(tuner: Tuner, jobs: int, progress: bool, draw: bool) -> None:
    from fedmim.report.progress import watching
    from fedmim.report.search_figure import write_search

    left = trials_left(tuner)
    if left:
        check_accuracy(tuner.run)
    pool = check_runs([tuner.run], Output(quiet=not progress), jobs, len(left)) if left else ThisProcess()
    with pool, watching(left, Console(stderr=True), not progress, jobs=pool.count) as display:
        tuner(display, pool)
    if draw:
        write_search(tuner.search, tuner.folder / TRIALS)


def _space(method: str, space: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None) -> dict[str, Range]:
    if not isinstance(space, Mapping):
        return space_of(method, set(), None if space is None else Path(space))
    for name, values in space.items():
        check_type(f"space: {name}", values, Mapping, 'a dict such as {"low": 0.01, "high": 1.0, "log": True}')
    return {name: make(Range, dict(values), f"space: {name}") for name, values in space.items()}
