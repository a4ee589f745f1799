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
    from fedmim.experiments.works import Failure, WorkPool
    from fedmim.results.method_results import MethodResults, RunResult


def check_runs(runs: Sequence[Run], output: Output, jobs: int | None = 1, count: int | None = None) -> WorkPool:
    """Set up each run once, so that errors in data, model or device show before anything is written.

    Returns the pool to train them. `jobs` is how many to train at once, None for a sensible number; `count` is the
    number of all runs, if it differs.
    """
    from rich.console import Console

    from fedmim.experiments.job_start import ready_pool
    from fedmim.report.progress import status_line

    console = Console(stderr=True, quiet=output.quiet)
    with status_line(console, f"loading {runs[0].config.problem.short('data')}"):
        pool, engines = ready_pool(
            runs, jobs, len(runs) if count is None else count, lambda line: console.print(line, highlight=False)
        )
    several = f"; jobs: {pool.count}, one core each" if pool.count > 1 else ""
    console.print(f"engine: {', '.join(sorted(engines))}{several}", highlight=not several)
    return pool


def train_folders(
    folders: Sequence[RunFolder], checkpoint_seconds: float, output: Output, pool: WorkPool | None = None
) -> list[Failure]:
    """Train all unfinished runs, with progress. A run that diverged does not stop the others.

    With a pool, a run that fails does not stop them either; returns the failures.
    """
    from rich.console import Console

    from fedmim.experiments.folder_work import FolderWork
    from fedmim.experiments.works import ThisProcess, failures_of
    from fedmim.report.progress import watching

    pool = pool or ThisProcess()
    with watching([each.run for each in folders], Console(stderr=True), output.quiet, jobs=pool.count) as display:
        works = []
        for folder in folders:
            if folder.finished:
                folder.save_config()
                display.skip(folder.run)
            else:
                works.append(FolderWork(folder.path, folder.run, checkpoint_seconds, output.callbacks))
        if not isinstance(pool, ThisProcess):
            return failures_of(works, pool, display)
        for work in works:
            work(display)  # the first error ends the command, with its traceback
        return []


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
