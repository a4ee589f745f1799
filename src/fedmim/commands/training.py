"""Code shared by `run` and `compare`: check runs, train them with progress, and show their results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedmim.commands.output import Output
from fedmim.divergence import divergence
from fedmim.errors import DivergedError, warn_user

if TYPE_CHECKING:
    from fedmim.experiments.run import Run
    from fedmim.experiments.run_folder import RunFolder
    from fedmim.results.method_results import MethodResults, RunResult
    from fedmim.simulation.record import Record


def check_runs(runs: Sequence[Run], output: Output) -> None:
    """Set up each run once, so that errors in data, model or device show before anything is written."""
    from rich.console import Console

    from fedmim.simulation.loop import rounds

    console = Console(stderr=True, quiet=output.quiet)
    with console.status(f"loading {runs[0].config.problem.data}"):
        engines = set()
        for run in reversed(runs):  # reversed: the task of the first run stays cached
            config = run.config
            engines.add(rounds(run.algorithm, config.task(), config.settings, config.execution).engine)
    console.print(f"engine: {', '.join(sorted(engines))}")


def train_folders(folders: Sequence[RunFolder], checkpoint_seconds: float, output: Output) -> None:
    """Train all unfinished runs, with progress. A run that diverged does not stop the others."""
    from rich.console import Console

    from fedmim.report.progress import watching
    from fedmim.simulation.callbacks import RunInfo, telling

    with watching([folder.run for folder in folders], Console(stderr=True), output.quiet) as display:
        for folder in folders:
            run = folder.run
            if folder.finished:
                folder.save_config()
                display.skip(run)
                continue
            with telling(output.callbacks, RunInfo.of(folder.path.name, run.algorithm, run.config.flat())) as tell:

                def watch(record: Record, run: Run = run, tell: Callable[[Record], None] = tell) -> None:
                    display.record(run, record)
                    tell(record)

                try:
                    folder.train(run.config.task(), watch, checkpoint_seconds)
                except DivergedError:  # shown with the results
                    display.skip(run)


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
