"""`fedmim reproduce`: the paper's tables and figures."""

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
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import check_checkpoint_seconds
from fedmim.experiments.sweep import Failure, Sweep
from fedmim.experiments.tune import TRIALS
from fedmim.flags import Flags, parse, select
from fedmim.reproduction.experiment import ABLATIONS, FAIR, OF_THE_PAPER, PaperExperiment, experiments_named, narrowed
from fedmim.reproduction.plan import ReproductionPlan, column_settings, trials_left
from fedmim.reproduction.scale import Scale
from fedmim.signals import resumable

USAGE = "fedmim reproduce EXPERIMENT"
ABOUT_REPRODUCE = f"""Run a table or figure of the paper and show it beside the paper's own numbers. What is finished
is not repeated: stop at any point and give the same command again. Given in several terminals (or once for each GPU,
with --device cuda:0, cuda:1, ...) it shares the runs among them. EXPERIMENT: {", ".join(OF_THE_PAPER)}, all (these
five); {", ".join(ABLATIONS)}, ablations (these three, which the paper lacks). Below are the settings of the scale; one
that is given here wins over it."""
FROM_THE_GRID = {"problem": ("data", "split", "validation"), "settings": ("seed",)}


@dataclass(frozen=True)
class ReproduceOptions:
    """The flags of the command itself."""

    scale: str = "cpu"
    """cpu or paper, or a TOML file of the same form as theirs."""
    data: tuple[str, ...] = ()
    """These data sets only."""
    split: tuple[str, ...] = ()
    """These splits only, or instead of the experiment's, as in dirichlet:0.1."""
    columns: tuple[str, ...] = ()
    """These columns only, by their heads, as in --columns 'E = 5'."""
    methods: str | None = None
    """These methods only, with commas; your own as file.py:ClassName."""
    seeds: tuple[int, ...] = ()
    """These seeds only; unless given, those of the scale."""
    fair: tuple[str, ...] = FAIR
    """common: all at the paper's learning rate; own: each at its best, which is searched."""
    dry_run: bool = False
    """Show the grid of runs, the time each will take, measured on a few steps, and bytes."""
    tables_only: bool = False
    """Run nothing; make tables and figures of what is finished."""
    keep_models: bool = False
    """Keep the final models, in models/ below --out."""
    out: str | None = None
    """Folder for runs, searches, tables and figures; unless given, results/SCALE."""
    checkpoint_seconds: float = 10.0
    """Write a checkpoint of the run in progress every so many seconds."""


def reproduce(argv: list[str]) -> None:
    """Run one experiment, or all."""
    if not argv or argv[0].startswith("-"):
        if argv and argv[0] not in ("-h", "--help"):
            raise UserError(f"reproduce: name the experiment first, as in `fedmim reproduce table1 {argv[0]} ...`")
        if argv:
            read_reproduce_flags(USAGE, argv, Config())
        return list_experiments()
    word, argv = argv[0], argv[1:]
    experiments = experiments_named(word)
    scale = Scale.read(select(argv).scale or ReproduceOptions.scale)
    first = experiments[0]
    base = Config.of(column_settings(first, scale, first.data[0], first.columns[0]), scale.name)
    flags = read_reproduce_flags(f"fedmim reproduce {word}", argv, base)
    asked, changed = flags.values["reproduce"], flags.changes("problem", "settings")
    check_checkpoint_seconds(asked["checkpoint_seconds"])
    execution = full_paths(flags.changes("execution"))
    if changed and asked["out"] is None:
        names = ", ".join(sorted(changed))
        raise UserError(f"out: with another {names} than the scale's, name a folder of its own for the results")
    if changed:
        told = ", ".join(f"{name} {changed[name]}" for name in sorted(changed))
        scale = replace(scale, shrunk=(*scale.shrunk, f"by the command line, over all that is said here: {told}"))
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
                failures = run_experiments(plan, console)
            except KeyboardInterrupt:
                write_report(plan, experiments)
                raise
    write_report(plan, experiments)
    if elsewhere := [failure for failure in failures if isinstance(failure.error, BusyError)]:
        console.print(f"fedmim: {len(elsewhere)} left to other processes, which are at work on them", highlight=False)
    failures = [failure for failure in failures if failure not in elsewhere]
    if failures:
        lines = "\n".join(f"  {failure}" for failure in failures)
        raise UserError(f"{len(failures)} failed; the same command tries them again:\n{lines}")
    return None


def list_experiments() -> None:
    """The experiments, a line each."""
    print(f"usage: {USAGE} [OPTIONS]     (`fedmim reproduce table1 --help` shows the options)\n")
    for name in OF_THE_PAPER + ABLATIONS:
        print(f"  {name:14}{PaperExperiment.read(name).title}")
    print(f"  {'all':14}the five of the paper\n  {'ablations':14}the other three")


def read_reproduce_flags(program: str, argv: list[str], base: Config) -> Flags:
    """Parse the command line; what the grid of runs sets has no flag."""
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
    """The experiments, narrowed. Data sets that are not there are left out, unless they were asked for by name."""
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
    """Those data sets that are there; a line for each that is not."""
    problems = {each.name: each.problem for each in known(data_dir) if each.problem}
    for name in names:
        if name in problems:
            print(f"fedmim: left out: {problems[name]}", file=sys.stderr)
    there = [name for name in names if name not in problems]
    if not there:
        raise UserError(f"data: none of {', '.join(names)} is there; `fedmim data` shows where it is looked for")
    return there


def tell_assumed(plan: ReproductionPlan, console: Console) -> None:
    """What was made smaller, and what the paper leaves open."""
    own = [note for experiment in plan.experiments for note in experiment.assumed]
    for heading, notes in (("shrunk", plan.scale.shrunk), ("assumed", dict.fromkeys([*own, *plan.scale.assumed]))):
        for note in notes:
            console.print(f"[bold]{heading}:[/] {note}", highlight=False)


def run_experiments(plan: ReproductionPlan, console: Console) -> list[Failure]:
    """First all runs at the common learning rate, then the searches, then all runs at their own settings."""
    from fedmim.report.progress import watching
    from fedmim.report.search_figure import write_search

    common = plan.to_do("common")
    if common:
        check_tasks(common)
    tuners = [tuner for tuner in plan.searches() if not tuner.finished]
    trials = [run for tuner in tuners for run in trials_left(tuner)]
    later = [*plan.expected(), *plan.to_do("own")]
    console.print(
        f"to do: {len(common)} runs at the common learning rate, {len(tuners)} searches of {len(trials)} trials, "
        f"{len(later)} runs at own settings",
        highlight=False,
    )
    with watching(common, console, later=[*trials, *later]) as display:
        failures = plan.sweep(common, display)
    with watching(trials, console, later=later) as display:
        for tuner in tuners:
            try:
                tuner(display)
                write_search(tuner.search, tuner.folder / TRIALS)
            except Exception as error:
                failures.append(Failure(tuner.search.run, error))
    own = plan.to_do("own")
    with watching(own, console) as display:
        failures += plan.sweep(own, display)
    return failures


def check_tasks(runs: Sequence[Run]) -> None:
    """Let what is wrong with data, model or device show before anything is run."""
    from fedmim.simulation.loop import rounds

    firsts = {run.config.problem.data: run for run in reversed(runs)}
    for run in firsts.values():
        rounds(run.algorithm, run.config.task(), run.config.settings, run.config.execution)


def write_report(plan: ReproductionPlan, experiments: Sequence[PaperExperiment]) -> None:
    """Tables and figures of all that is finished, also of what was not asked for this time."""
    from fedmim.report.page import write_page
    from fedmim.reproduction.figures import write_paper_figures
    from fedmim.reproduction.layout import Layout, finished_entries
    from fedmim.reproduction.tables import terminal_table, write_tables
    from fedmim.results.grouping import group_runs
    from fedmim.results.loading import find_runs, load_runs

    out, console = plan.sweep.path, Console(width=None if sys.stdout.isatty() else 160)
    with plan.sweep.alone():
        for experiment, whole in zip(plan.experiments, experiments, strict=True):
            wide = plan.widened(whole, experiment)
            (shown,) = wide.experiments
            done = finished_entries(wide.cells(), plan.sweep.archive, plan.scale.targets)
            if not done:
                console.print(f"{experiment.name}: nothing is finished yet")
                continue
            layout = Layout(shown, done)
            written = write_tables(layout, plan.scale, out) + write_paper_figures(layout, out)
            console.print(f"\n[bold]{shown.title}[/]", highlight=False)
            for data in layout.data:
                console.print(terminal_table(layout, data))
            console.print(f"{out}{os.sep}: {', '.join(path.name for path in written)}", highlight=False)
        if plan.sweep.archive.path.is_dir():
            page = out / "report.html"
            write_page(group_runs(load_runs(find_runs([plan.sweep.archive.path], console.print))), page)
            console.print(f"open {page.resolve().as_uri()}", highlight=False)
