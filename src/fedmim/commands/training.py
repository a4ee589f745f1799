"""Code shared by `run` and `compare`: check runs, train them with progress, and show their results."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedmim.commands.output import Output
from fedmim.divergence import divergence
from fedmim.errors import DivergedError, warn_user

if TYPE_CHECKING:
    from fedmim.experiments.run import Run
    from fedmim.experiments.run_folder import RunFolder
    from fedmim.experiments.sweep import Failure
    from fedmim.results.method_results import MethodResults, RunResult


def check_runs(runs: Sequence[Run], output: Output, jobs: int | None = 1, count: int | None = None) -> int:
    """Set up each run once, so that errors in data, model or device show before anything is written.

    Returns how many runs to train at once. `jobs` is the number asked for, None for a sensible one; `count` is the
    number of all runs, if there are more of these kinds.
    """
    from rich.console import Console

    from fedmim.experiments.job_count import Need, choose_jobs
    from fedmim.report.progress import status_line
    from fedmim.simulation.loop import rounds

    console = Console(stderr=True, quiet=output.quiet)
    count = len(runs) if count is None else count
    alone = jobs == 1 or count <= 1
    with status_line(console, f"loading {runs[0].config.problem.data}"):
        engines, needs = set(), []
        for run in reversed(runs):  # reversed: the task of the first run stays cached
            config = run.config
            training = rounds(run.algorithm, config.task(), config.settings, config.execution)
            engines.add(training.engine)
            needs += [] if alone else [Need.of(training, config.execution.device)]
    chosen = 1 if alone else choose_jobs(jobs, count, needs, lambda line: console.print(line, highlight=False))
    if chosen > 1:
        engines = {"serial" if engine == "processes" else engine for engine in engines}
    several = f"; jobs: {chosen}, one core each" if chosen > 1 else ""
    console.print(f"engine: {', '.join(sorted(engines))}{several}", highlight=chosen == 1)
    return chosen


def train_folders(
    folders: Sequence[RunFolder], checkpoint_seconds: float, output: Output, jobs: int = 1
) -> list[Failure]:
    """Train all unfinished runs, with progress. A run that diverged does not stop the others.

    With several jobs, a run that fails does not stop them either; returns the failures.
    """
    from rich.console import Console

    from fedmim.experiments.jobs import FolderWork, JobPool, failures_of
    from fedmim.report.progress import watching

    with watching([each.run for each in folders], Console(stderr=True), output.quiet, jobs=jobs) as display:
        works = []
        for folder in folders:
            work = FolderWork(folder.path, folder.run, checkpoint_seconds, output.callbacks)
            if folder.finished:
                folder.save_config()
                display.skip(folder.run)
            elif jobs > 1:
                works.append(work)
            else:
                work(display)
        if jobs == 1:
            return []
        with JobPool(jobs) as pool:
            return failures_of(works, pool, display)


def tell_diverged(runs: Sequence[RunResult]) -> None:
    """Warn about each run that diverged. If all runs diverged, raise DivergedError."""
    failed = [run for run in runs if run.diverged]
    lines = [f"{run.run.label}, seed {run.seed}: {divergence(run.records)}" for run in failed]
    if len(failed) == len(runs) == 1:
        raise DivergedError(lines[0])
    for line in lines:
        warn_user(line)
    if failed and len(failed) == len(runs):
        raise DivergedError(f"all {len(runs)} runs diverged; there is nothing to compare")


def show_results(methods: Sequence[MethodResults], target: float | None, folder: Path, output: Output) -> None:
    """Print the results as a table or as JSON."""
    from rich.console import Console

    from fedmim.report.terminal_table import fitting_table, notes
    from fedmim.report.wording import describe_configs
    from fedmim.results.results_json import as_json

    if output.json:
        print(json.dumps({"folder": str(folder), **as_json(methods, target)}))
    if output.json or output.quiet:
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print()
    console.print(describe_configs([method.run.config for method in methods]), style="bold", highlight=False)
    console.print(fitting_table(methods, target, console))
    console.print(notes(methods, target), style="dim", highlight=False)
