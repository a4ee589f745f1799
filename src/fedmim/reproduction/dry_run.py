"""`fedmim reproduce --dry-run`: the grid of runs, with what each costs."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.table import Table

from fedmim.report.progress import status_line
from fedmim.reproduction.cost import CostMeter
from fedmim.reproduction.plan import ReproductionPlan, place_of, trials_left
from fedmim.results.number_formats import duration


def dry_run(plan: ReproductionPlan, console: Console) -> None:
    """Print it; the only thing that is trained is the few steps that are timed."""
    measure = CostMeter()
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for heading in ("experiment", "data", "column", "row", "fair"):
        table.add_column(heading)
    for heading in ("runs", "finished", "time of one"):
        table.add_column(heading, justify="right")
    places = plan.cells()
    alike = {place_of(cell): cell.runs[0] for cell in places if cell.runs}  # for runs that are not known yet
    seconds, kept, in_progress = 0.0, 0, 0
    seen: set[str] = set()
    with status_line(console) as tell:
        for cell in places:
            tell(f"timing {cell.row.label} on {cell.data}")
            like = cell.runs[0] if cell.runs else alike.get(place_of(cell))
            if like is None:  # only --fair own was asked for, and its search is still to come
                continue
            cost = measure(like)
            finished = [plan.sweep.archive.records(run) is not None for run in cell.runs]
            due = len(plan.seeds)
            if cell.runs:
                new = {run.identity() for run, done in zip(cell.runs, finished, strict=True) if not done} - seen
                due, seen = len(new), seen | new
            seconds, kept = seconds + due * cost.seconds, kept + due * cost.kept
            in_progress = max(in_progress, cost.in_progress)
            words = (cell.experiment.name, cell.data, cell.column.label, cell.row.label, cell.fair)
            table.add_row(*words, str(len(plan.seeds)), str(sum(finished)), duration(cost.seconds))
        for tuner in plan.searches():
            run, left = tuner.search.run, len(trials_left(tuner))
            tell(f"timing {run.label} on {run.config.problem.data}")
            cost, trials = measure(run), tuner.search.trials
            seconds += left * cost.seconds
            words = ("search", run.config.problem.data, "", run.label, "own")
            table.add_row(*words, str(trials), str(trials - left), duration(cost.seconds))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(
        f"\nabout {duration(seconds)} in all at most (searches stop hopeless trials early); "
        f"{plan.sweep.path}{os.sep} grows by about {kept / 1e6:.1f} MB, "
        f"and by up to {in_progress / 1e6:.0f} MB more while a run is in progress"
    )
