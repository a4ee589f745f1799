"""`fedmim reproduce --dry-run`: list the runs and estimate their costs.

The time of a run is estimated from a few local steps with its engine. The other cost is its size on disk.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fedmim.algorithms import Algorithm
from fedmim.experiments.run import Run
from fedmim.report.progress import status_line
from fedmim.reproduction.layout import FAIR_TITLES
from fedmim.reproduction.plan import ReproductionPlan, place_of, trials_left
from fedmim.results.number_formats import duration
from fedmim.simulation.settings import PARTICIPATION

if TYPE_CHECKING:
    from fedmim.simulation.loop import Rounds

STEPS = (1, 5)  # local steps of the timed rounds
LINE = 64  # approximate bytes per round in the archive
HEAD = 1000  # approximate bytes of a configuration in the archive


def dry_run(plan: ReproductionPlan, console: Console) -> None:
    """Print the list. Only the timed steps are trained."""
    measure = CostMeter()
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for heading in ("experiment", "data", "column", "row", "settings"):
        table.add_column(heading)
    for heading in ("runs", "finished", "time per run"):
        table.add_column(heading, justify="right")
    places = plan.cells()
    alike = {place_of(cell): cell.runs[0] for cell in places if cell.runs}  # stands in for runs that are not known yet
    seconds, kept, in_progress = 0.0, 0, 0
    seen: set[str] = set()
    searches = plan.searches()
    number, total = count(1), len(places) + len(searches)
    with status_line(console) as tell:
        for cell in places:
            tell(f"timing {cell.row.label} on {cell.data}: {next(number)} of {total}")
            like = cell.runs[0] if cell.runs else alike.get(place_of(cell))
            if like is None:  # with --fair own, before its search
                continue
            cost = measure(like)
            finished = [plan.sweep.archive.records(run) is not None for run in cell.runs]
            due = len(plan.seeds)
            if cell.runs:
                new = {run.identity() for run, done in zip(cell.runs, finished, strict=True) if not done} - seen
                due, seen = len(new), seen | new
            seconds, kept = seconds + due * cost.seconds, kept + due * cost.kept
            in_progress = max(in_progress, cost.in_progress)
            words = (cell.experiment.name, cell.data, cell.column.label, cell.row.label, FAIR_TITLES[cell.fair])
            table.add_row(*words, str(len(plan.seeds)), str(sum(finished)), duration(cost.seconds))
        for tuner in searches:
            run, left = tuner.search.run, len(trials_left(tuner))
            tell(f"timing {run.label} on {run.config.problem.data}: {next(number)} of {total}")
            cost, trials = measure(run), tuner.search.trials
            seconds += left * cost.seconds
            words = ("search", run.config.problem.data, "", run.label, FAIR_TITLES["own"])
            table.add_row(*words, str(trials), str(trials - left), duration(cost.seconds))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(
        f"\nat most about {duration(seconds)} in total (searches stop poor trials early); "
        f"{plan.sweep.path}{os.sep} grows by about {kept / 1e6:.1f} MB, "
        f"and by up to {in_progress / 1e6:.0f} MB more while a run is in progress"
    )


@dataclass(frozen=True)
class Cost:
    """The cost of one run."""

    seconds: float
    kept: int
    """Bytes that stay in the archive."""
    in_progress: int
    """Bytes of the checkpoint and client state, removed when the run ends."""


class CostMeter:
    """Measures the cost of runs. Runs that take the same time are measured once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float, int]] = {}  # seconds per round and per evaluation; bytes

    def __call__(self, run: Run) -> Cost:
        """The cost of a run."""
        key = speed_key(run)
        if key not in self._known:
            self._known[key] = self._measure(run)
        round, evaluation, in_progress = self._known[key]
        rounds, every = run.config.settings.rounds, run.config.settings.eval_every
        seconds = rounds * round + -(-rounds // every) * evaluation
        return Cost(seconds, HEAD + LINE * rounds, in_progress)

    def _measure(self, run: Run) -> tuple[float, float, int]:
        from fedmim.cores import cores
        from fedmim.simulation.ledger import vector_bytes
        from fedmim.simulation.loop import rounds

        config, task, method = run.config, run.config.task(), run.algorithm
        whole = rounds(method, task, config.settings, config.execution)  # only to select its engine
        settings = config.settings
        clients, steps = settings.active(len(task.clients)), settings.steps(task.size(0)) * settings.local_work.mean
        few = min(clients, 2 * (config.execution.workers or cores()))
        plain = config.replace(**PARTICIPATION, late="drop", until=None, patience=None)
        short = plain.replace(rounds=9, eval_every=9, participation=few / len(task.clients), engine=whole.engine)

        def timed(**changes: int) -> Rounds:
            changed = short.replace(**changes)
            run = rounds(method, task, changed.settings, changed.execution)
            next(run)  # the first round starts workers and warms up
            return run

        times = [min(next(run).seconds for _ in range(3)) for run in (timed(local_steps=number) for number in STEPS)]
        step = max(0.0, (times[1] - times[0]) / (STEPS[1] - STEPS[0]))
        fixed = max(0.0, times[0] - STEPS[0] * step)
        evaluation = max(0.0, next(timed(local_steps=STEPS[0], eval_every=1)).seconds - times[0])
        state = whole.server.state
        vectors = vector_bytes({"params": state.params, **state.slots})
        kept_by_clients = len(task.clients) * len(run.algorithm.client_slots) * vector_bytes({"params": state.params})
        return clients / few * (fixed + steps * step), evaluation, vectors + kept_by_clients


def speed_key(run: Run) -> str:
    """A key for runs with the same time per round: settings that do not affect the time are set to one value."""
    idle = {"seed": 0, "rounds": 1, "eval_every": 1, "until": None, "patience": None}
    rates = {"lr": 1.0, "lr_schedule": "exponential", "lr_decay": 1.0, "weight_decay": 0.0, "server_lr": None}
    shape = [len(value) if isinstance(value, tuple) else 0 for value in vars(run.algorithm).values()]
    split = {} if run.config.problem.split == "natural" else {"split": "iid"}
    alike = replace(run.replace(**idle, **rates, **split), algorithm=Algorithm())
    return json.dumps([alike.identity(), shape])
