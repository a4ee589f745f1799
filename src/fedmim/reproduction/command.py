"""`fedmim reproduce`: reproduce the tables and figures of the paper."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fedmim.data.catalogue import known
from fedmim.errors import BusyError, UserError, unknown
from fedmim.experiments.config import Config, full_paths
from fedmim.experiments.job_count import check_jobs
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import check_checkpoint_seconds
from fedmim.experiments.search_results import TRIALS
from fedmim.experiments.sweep import Sweep
from fedmim.experiments.tune import Tuner
from fedmim.experiments.works import Display, Failure, WorkPool, answers_of, raise_failures
from fedmim.flags import Flags, parse, select
from fedmim.reproduction.experiment import (
    ABLATIONS,
    BEYOND,
    EXPERIMENTS,
    FAIR,
    OF_THE_PAPER,
    PaperExperiment,
    experiments_named,
    narrowed,
)
from fedmim.reproduction.plan import ReproductionPlan, column_settings, trials_left
from fedmim.reproduction.scale import Scale
from fedmim.signals import resumable

USAGE = "fedmim reproduce EXPERIMENT"
ABOUT_REPRODUCE = f"""Reproduce a table or figure of the paper and show the results next to its numbers. Finished
runs are not repeated: stop at any time and give the same command again to resume. Started in several terminals (or once
per GPU, with --device cuda:0, cuda:1, ...), the processes share the runs. EXPERIMENT: {", ".join(OF_THE_PAPER)}, or all
(these five); {", ".join(ABLATIONS)}, or ablations (these three, which are not in the paper); {", ".join(BEYOND)}
(questions that the paper leaves open; docs/choosing.md). The defaults below are the settings of the scale. Flags
override them."""
# Also without per_client: the archive has no files of the clients.
FROM_THE_GRID = {"problem": ("data", "split", "validation"), "settings": ("seed",), "execution": ("per_client",)}


@dataclass(frozen=True)
class ReproduceOptions:
    """The options of the command."""

    scale: str = "cpu"
    """Size of the experiments: cpu, paper, mnist1d (only family and look-ahead), or a TOML file in the same format."""
    data: tuple[str, ...] = ()
    """Run only these data sets."""
    split: tuple[str, ...] = ()
    """Run only these splits, or replace the split of the experiment, for example dirichlet:0.1."""
    columns: tuple[str, ...] = ()
    """Run only these columns, by their headings, for example --columns 'E = 5'."""
    methods: str | None = None
    """Run only these comma-separated methods; file.py:ClassName for your own."""
    seeds: tuple[int, ...] = ()
    """Run only these seeds; default: those of the scale."""
    fair: tuple[str, ...] = FAIR
    """common: all methods use the paper's learning rate. own: each method uses tuned settings, which are searched
    first."""
    dry_run: bool = False
    """List the runs without training them. Shows their time, estimated from a few local steps, and disk space."""
    tables_only: bool = False
    """Train nothing. Write the tables and figures of the finished runs."""
    keep_models: bool = False
    """Keep the final models, in the folder models/ of --out."""
    out: str | None = None
    """Output folder for runs, searches, tables and figures; default: results/SCALE."""
    checkpoint_seconds: float = 10.0
    """Minimum number of seconds between two checkpoints of a run. 0 writes one after every round."""
    jobs: int | None = None
    """Number of runs, or of searches, to train at once, each with one core; none: one per core if it saves time,
    memory permitting. The results are the same, bit for bit."""


def reproduce(argv: list[str]) -> None:
    """Run one experiment, or several."""
    if not argv or argv[0].startswith("-"):
        if argv and argv[0] not in ("-h", "--help"):
            raise UserError(f"reproduce: give the experiment first, as in `fedmim reproduce table1 {argv[0]} ...`")
        if argv:
            read_reproduce_flags(USAGE, argv, Config())
        return list_experiments()
    word, argv = argv[0], argv[1:]
    scale = Scale.read(select(argv).scale or ReproduceOptions.scale)
    experiments = [scale.fitted(each) for each in experiments_named(word)]
    first = experiments[0]
    base = Config.of(column_settings(first, scale, first.data[0], first.columns[0]), scale.name)
    flags = read_reproduce_flags(f"fedmim reproduce {word}", argv, base)
    asked, changed = flags.values["reproduce"], flags.changes("problem", "settings")
    check_checkpoint_seconds(asked["checkpoint_seconds"])
    check_jobs(asked["jobs"])
    execution = full_paths(flags.changes("execution"))
    if changed and asked["out"] is None:
        names = ", ".join(sorted(changed))
        raise UserError(f"out: {names} differs from the scale; give a separate output folder with --out")
    if changed:
        told = ", ".join(f"{name} {changed[name]}" for name in sorted(changed))
        scale = replace(scale, shrunk=(*scale.shrunk, f"changed on the command line, overriding these notes: {told}"))
    plan = ReproductionPlan(
        tuple(asked_for(experiments, asked, execution.get("data_dir"))),
        scale,
        asked["seeds"] or scale.seeds,
        changed | execution,
        Sweep(Path(asked["out"] or f"results/{scale.name}"), asked["keep_models"], asked["checkpoint_seconds"]),
    )
    if plan.sweep.archive.path.is_dir():
        with plan.sweep.alone():
            plan.sweep.archive.convert()
    console = Console(stderr=True)
    tell_assumed(plan, console)
    if asked["dry_run"]:
        from fedmim.reproduction.dry_run import dry_run

        return dry_run(plan, console)
    failures: list[Failure] = []
    if not asked["tables_only"]:
        with resumable("the same command resumes it"):
            try:
                failures = run_experiments(plan, console, asked["jobs"])
            except KeyboardInterrupt:
                write_report(plan, experiments)
                raise
    write_report(plan, experiments)
    if elsewhere := [failure for failure in failures if isinstance(failure.error, BusyError)]:
        console.print(f"fedmim: runs in progress in other processes: {len(elsewhere)}", highlight=False)
    raise_failures([each for each in failures if each not in elsewhere], "the same command retries them")
    return None


def list_experiments() -> None:
    """Print the experiments, one per line."""
    print(f"usage: {USAGE} [OPTIONS]     (`fedmim reproduce table1 --help` shows the options)\n")
    for name in EXPERIMENTS:
        print(f"  {name:14}{PaperExperiment.read(name).title}")
    print(f"  {'all':14}the five experiments of the paper\n  {'ablations':14}the three ablations")


def read_reproduce_flags(program: str, argv: list[str], base: Config) -> Flags:
    """Parse the command line. Settings that vary within an experiment have no flag."""
    parts = {
        "reproduce": ReproduceOptions(),
        "problem": base.problem,
        "settings": base.settings,
        "execution": base.execution,
    }
    return parse(program, ABOUT_REPRODUCE, argv, parts, without=FROM_THE_GRID)


def asked_for(
    experiments: Sequence[PaperExperiment], asked: dict[str, Any], data_dir: str | None
) -> list[PaperExperiment]:
    """The requested parts of the experiments. Missing data sets are skipped, unless they are requested by name."""
    for fair in asked["fair"]:
        if fair not in FAIR:
            raise unknown("fair", fair, FAIR)
    made = []
    for whole in experiments:
        experiment = narrowed(
            whole,
            data=asked["data"],
            splits=asked["split"],
            columns=asked["columns"],
            methods=asked["methods"],
            fair=tuple(fair for fair in asked["fair"] if fair in whole.fair),
        )
        if not asked["data"] and not asked["tables_only"]:
            experiment = replace(experiment, data=tuple(found(experiment.data, data_dir)))
        made.append(experiment)
    return made


def found(names: Sequence[str], data_dir: str | None) -> list[str]:
    """The available data sets. Prints one line per missing one."""
    problems = {each.name: each.problem for each in known(data_dir) if each.problem}
    for name in names:
        if name in problems:
            print(f"fedmim: skipped: {problems[name]}", file=sys.stderr)
    there = [name for name in names if name not in problems]
    if not there:
        raise UserError(
            f"data: none of {', '.join(names)} was found; `fedmim data` shows the folders that are searched"
        )
    return there


def tell_assumed(plan: ReproductionPlan, console: Console) -> None:
    """Print what is smaller than in the paper, and what is assumed where the paper gives no details."""
    own = [note for experiment in plan.experiments for note in experiment.assumed]
    for heading, notes in (
        ("smaller than in the paper", plan.scale.shrunk),
        ("assumed", dict.fromkeys([*own, *plan.scale.assumed])),
    ):
        for note in notes:
            console.print(f"[bold]{heading}:[/] {note}", highlight=False)


def run_experiments(plan: ReproductionPlan, console: Console, asked: int | None = 1) -> list[Failure]:
    """Train the runs with the shared learning rate, then run the searches, then train the tuned runs."""
    from fedmim.experiments.job_start import ready_pool
    from fedmim.report.progress import status_line, watching

    common = plan.to_do("common")
    tuners = [tuner for tuner in plan.searches() if not tuner.finished]
    trials = [run for tuner in tuners for run in trials_left(tuner)]
    later = [*plan.expected(), *plan.to_do("own")]
    firsts: dict[str, Run] = {}  # of each data set
    for run in (*common, *(tuner.run for tuner in tuners), *later):
        firsts.setdefault(run.config.problem.data, run)
    with status_line(console, f"loading {', '.join(firsts)}"):
        pool, _ = ready_pool(
            list(firsts.values()),
            asked,
            max(len(common), len(tuners), len(later)),
            lambda line: console.print(line, highlight=False),
        )
    console.print(
        f"to do: {len(common)} runs with the shared learning rate, {len(tuners)} searches with {len(trials)} trials, "
        f"{len(later)} runs with tuned settings" + (f"; jobs: {pool.count}, one core each" if pool.count > 1 else ""),
        highlight=False,
    )
    with pool:
        with watching(common, console, later=[*trials, *later], jobs=pool.count) as display:
            failures = plan.sweep(common, display, pool)
        with watching(trials, console, later=later, jobs=pool.count) as display:
            failures += run_searches(tuners, pool, display)
        own = plan.to_do("own")
        with watching(own, console, jobs=pool.count) as display:
            failures += plan.sweep(own, display, pool)
    return failures


def run_searches(tuners: Sequence[Tuner], pool: WorkPool, display: Display) -> list[Failure]:
    """Run the searches, as many at once as there are jobs, each with one trial at a time. Draw their figures."""
    from fedmim.report.search_figure import write_search

    failures = []
    for tuner, answer in answers_of(tuners, pool, display):
        if isinstance(answer, Exception):
            failures.append(Failure(tuner.search.run, answer))
        else:
            write_search(tuner.search, tuner.folder / TRIALS)
    return failures


def write_report(plan: ReproductionPlan, experiments: Sequence[PaperExperiment]) -> None:
    """Write the tables and figures of all finished runs, including those of earlier commands."""
    from fedmim.report.page import write_page
    from fedmim.reproduction.figures import write_paper_figures
    from fedmim.reproduction.layout import Layout, finished_entries
    from fedmim.reproduction.tables import terminal_table, write_tables
    from fedmim.results.grouping import group_runs
    from fedmim.results.loading import find_runs, load_results

    out, console = plan.sweep.path, Console(width=None if sys.stdout.isatty() else 240)
    with plan.sweep.alone():
        for experiment, whole in zip(plan.experiments, experiments, strict=True):
            wide = plan.widened(whole, experiment)
            (shown,) = wide.experiments
            done = finished_entries(wide.cells(), plan.sweep.archive, plan.scale.targets)
            if not done:
                console.print(f"{experiment.name}: no run is finished yet")
                continue
            layout = Layout(shown, done)
            written = write_tables(layout, plan.scale, out) + write_paper_figures(layout, out)
            console.print(f"\n[bold]{shown.title}[/]", highlight=False)
            for data in layout.data:
                console.print(terminal_table(layout, data))
            console.print(f"{out}{os.sep}: {', '.join(path.name for path in written)}", highlight=False)
        if plan.sweep.archive.path.is_dir():
            page = out / "report.html"
            runs = load_results(find_runs([plan.sweep.archive.path], console.print), console.print)
            write_page(group_runs(runs), page)
            console.print(f"open {page.resolve().as_uri()}", highlight=False)
