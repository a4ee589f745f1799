"""`fedmim.compare`: `fedmim compare` for methods and a task in Python. It writes the same folders."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fedmim.algorithms import Algorithm
from fedmim.commands.compare import ComparisonTraining
from fedmim.commands.output import Output
from fedmim.display import html_table
from fedmim.errors import UserError
from fedmim.experiments.comparison import COMPARISON, Comparison
from fedmim.experiments.config import Config, Problem
from fedmim.experiments.fingerprint import name_in_memory
from fedmim.experiments.methods import label_all, method_name
from fedmim.experiments.run import Run, changed_hyper_parameters
from fedmim.experiments.sources import in_memory
from fedmim.experiments.toml_values import plain
from fedmim.results.method_results import MethodResults, RunResult, by_label
from fedmim.simulation.settings import Execution, Settings

if TYPE_CHECKING:
    import pandas

    from fedmim.simulation.callbacks import Callback
    from fedmim.simulation.task import Task

Method: TypeAlias = Algorithm | tuple[Algorithm, Settings]  # with the shared or its own settings

ALREADY_THERE = "already holds results; use resume=True to continue them, or give another folder"


@dataclass(frozen=True, repr=False)
class ComparisonResults:
    """The results of a comparison. It prints as a table, also in notebooks."""

    runs: tuple[RunResult, ...]
    """All runs. `records` of a run has a dict per round, with the fields of `Record`."""
    target: float | None
    """The target accuracy of rounds to target."""
    folder: Path | None
    """The folder, if one was given."""

    @property
    def results(self) -> list[MethodResults]:
        """The runs of each method together, in the order of the methods."""
        return by_label(self.runs, self.target)

    def summary(self) -> pandas.DataFrame:
        """The metrics and settings of the runs, one row each: see `fedmim.load_summary`."""
        from fedmim.results.frames import load_summary

        if self.folder is None:
            raise UserError("summary: needs the folder of the comparison; give out to fedmim.compare")
        return load_summary(self.folder, target=self.target)

    def __repr__(self) -> str:
        from rich.console import Console

        from fedmim.report.terminal_table import fitting_table

        console = Console(width=120, file=io.StringIO(), color_system=None, force_jupyter=False)
        with console.capture() as text:
            console.print(fitting_table(self.results, self.target, console))
        return "\n".join(line.rstrip() for line in text.get().rstrip().splitlines())

    def _repr_html_(self) -> str:
        from fedmim.report.terminal_table import comparison_table

        columns = comparison_table(self.results, self.target).columns
        rows = zip(*(column.cells for column in columns), strict=True)
        return html_table([column.header for column in columns], rows)


def compare(
    methods: Sequence[Method] | Mapping[str, Method],
    task: Task,
    settings: Settings | None = None,
    *,
    seeds: Sequence[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    target: float | None = None,
    execution: Execution | None = None,
    jobs: int | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> ComparisonResults:
    """Train several methods on a task, each with all seeds (default: that of the settings).

    `methods` is a list of algorithms, or a dict of labels and algorithms; (algorithm, settings) has its own settings.
    `out` is the folder for results, which `fedmim report`, `plot` and `watch` read. With `resume`, a comparison in this
    folder is resumed; more methods and seeds can be added. All seeds start from the weights of the task's model.
    `jobs` is the number of runs at once; default: one per core if it saves time.
    """
    from fedmim.simulation.task import check_arguments

    check_arguments(task, settings, execution)
    shared = settings or Settings()
    chosen = (shared.seed,) if seeds is None else _seeds(seeds)
    with task_in_memory(task) as problem:
        runs = _runs(methods, Config(problem, shared, execution or Execution()))
        asked = Comparison(tuple(runs), chosen, target)
        with _folder(out) as folder:
            there = (folder / COMPARISON).exists()
            if there and not resume:
                raise UserError(f"{folder}: {ALREADY_THERE}")
            if there:
                _check_complete(Comparison.open(folder), asked, folder)
            how = "call fedmim.compare again, with resume=True"
            found: list[RunResult] = []
            training = ComparisonTraining(there, jobs, 10.0, f"{how} to resume it", f"{how} to retry them")
            training(asked, folder, Output(quiet=not progress, callbacks=tuple(callbacks)), found.extend)
    return ComparisonResults(tuple(found), target, None if out is None else folder)


@contextmanager
def task_in_memory(task: Task, validation: float = 0.0) -> Iterator[Problem]:
    """Within the block, the data of the problem is this task."""
    name = name_in_memory(task)
    model = type(task.model).__name__
    with in_memory(name, task):
        yield Problem(name, split="natural", clients=len(task.clients), model=model, validation=validation)


def _runs(methods: Sequence[Method] | Mapping[str, Method], config: Config) -> Iterator[Run]:
    if isinstance(methods, str | Algorithm | type):
        raise UserError(f"methods: must be a list of algorithms, or a dict of labels and algorithms, got {methods!r}")
    named = dict(methods) if isinstance(methods, Mapping) else None
    listed = [_parts(each, config.settings) for each in (methods if named is None else named.values())]
    labels = _labels(listed, config.settings) if named is None else list(named)
    for label, (algorithm, settings) in zip(labels, listed, strict=True):
        if not isinstance(label, str):
            raise UserError(f"methods: a label must be a string, got {label!r}")
        yield Run(method_name(algorithm), algorithm, Config(config.problem, settings, config.execution), label)


def _seeds(seeds: Any) -> tuple[int, ...]:
    """The seeds as numbers of Python; NumPy's are accepted."""
    try:
        return tuple(map(index, seeds))
    except TypeError as error:
        raise UserError(f"seeds: must be a list of whole numbers, as in seeds=(0, 1, 2), got {seeds!r}") from error


def _parts(method: Any, shared: Settings) -> tuple[Algorithm, Settings]:
    algorithm, settings = method if isinstance(method, tuple) and len(method) == 2 else (method, shared)
    if not (isinstance(algorithm, Algorithm) and isinstance(settings, Settings)):
        raise UserError(f"methods: each must be an Algorithm, or (Algorithm, Settings), got {method!r}")
    return algorithm, settings


def _labels(methods: Sequence[tuple[Algorithm, Settings]], shared: Settings) -> list[str]:
    """The titles of the methods, with the hyper-parameters and settings that are not the usual ones."""
    variants, usual = [], plain(shared)
    for algorithm, settings in methods:
        own = {name: value for name, value in plain(settings).items() if value != usual[name]}
        changed = changed_hyper_parameters(algorithm)
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in (changed | own).items()}
        variants.append((method_name(algorithm), values))
    titles = {name: algorithm.title for (name, _), (algorithm, _) in zip(variants, methods, strict=True)}
    try:
        return label_all(variants, titles)
    except UserError as error:
        raise UserError("methods: two have the same label; give a dict of labels and methods") from error


@contextmanager
def _folder(out: str | os.PathLike[str] | None) -> Iterator[Path]:
    """The folder of the results; a temporary one if none is given."""
    if out is not None:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="fedmim-") as name:
        yield Path(name) / "comparison"


def _check_complete(saved: Comparison, asked: Comparison, folder: Path) -> None:
    """Reject a comparison without runs that the folder has."""
    labels = [run.label for run in asked.runs]
    missing = [run.label for run in saved.runs if run.label not in labels]
    missing += [f"seed {seed}" for seed in saved.seeds if seed not in asked.seeds]
    if missing:
        raise UserError(f"{folder}: its comparison also has {missing[0]}; resume it with all of its methods and seeds")
