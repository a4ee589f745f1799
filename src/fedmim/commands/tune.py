"""`fedmim tune`: search the learning rate and hyper-parameters of a method on held-out training data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fedmim.algorithms import WRAPPERS
from fedmim.commands.method_flags import WITHOUT, given_method_values, method_parts
from fedmim.commands.output import Output
from fedmim.commands.run import configured_run
from fedmim.commands.training import check_runs
from fedmim.cores import cores
from fedmim.errors import UserError
from fedmim.experiments.config import full_paths
from fedmim.experiments.job_count import check_jobs
from fedmim.experiments.methods import title_of
from fedmim.experiments.run import Run
from fedmim.experiments.search import Search, space_of
from fedmim.experiments.search_results import TRIALS, Found, best_toml
from fedmim.experiments.trial_work import check_accuracy
from fedmim.experiments.tune import Tuner
from fedmim.experiments.works import Failure, ThisProcess, WorkPool, answers_of, raise_failures
from fedmim.flags import parse, select
from fedmim.reproduction.experiment import TableRow
from fedmim.reproduction.plan import search_for, trials_left
from fedmim.reproduction.scale import Scale
from fedmim.signals import resumable

ABOUT_TUNE = """Search the learning rate and the hyper-parameters of a method with Optuna. Settings are selected by the
accuracy on held-out training data; the test data is not used. Trials that perform poorly are stopped early. Settings
given on the command line are fixed, not searched. The command prints the best settings as TOML for `run` and `compare`.
If it is interrupted, the same command resumes the search. METHOD: a name from `fedmim methods`, several separated by
commas, or file.py:ClassName."""
VALIDATION = 0.1


@dataclass(frozen=True)
class TuneOptions:
    """The options of the command."""

    trials: int | None = None
    """Number of trials; default: 20, or that of the scale."""
    scale: str | None = None
    """Search with the settings of a scale of `fedmim reproduce`: cpu, paper or a TOML file."""
    space: str | None = None
    """TOML file with the search space; default: the built-in ranges."""
    config: str | None = None
    """TOML file with settings, named like these flags. Flags override the file."""
    out: str | None = None
    """Output folder; default: runs/tune, or results/SCALE/tune with --scale."""
    jobs: int | None = None
    """Several methods: the number of searches at once, each with one core. One method: the number of trials at once.
    The search then asks for this many trials before it sees their results, so its trials depend on this number, which
    is recorded: a resumed search keeps it. Default: one per core; with --scale and one method, 1."""


def tune_command(argv: list[str]) -> None:
    """Search the settings of one or several methods."""
    if not argv or not all(argv[0].split(",")) or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        raise UserError("tune: give the method first, as in `fedmim tune fedmim --trials 20`")
    methods, rest = ("fedmim", argv) if argv[0].startswith("-") else (argv[0], argv[1:])
    searches = [read_search(method, rest) for method in methods.split(",")]
    asked, scaled = read_jobs(rest)
    at_once = 1 if len(searches) > 1 else asked or (1 if scaled else cores())
    tuners = [Tuner(search, folder / search.name, at_once=at_once) for search, folder in searches]
    pool: WorkPool = ThisProcess()
    if left := [tuner for tuner in tuners if not tuner.finished]:
        for tuner in left:
            check_accuracy(tuner.run)
        trials = len(trials_left(left[0])) if at_once > 1 else 1
        pool = check_runs([tuner.run for tuner in left], Output(), asked, trials if len(searches) == 1 else len(left))
    console = Console(stderr=True)
    with resumable("the same command resumes it"), pool:
        found = run_all(tuners, console, pool)
    for tuner, best in zip(tuners, found, strict=True):
        console.print(
            f"{tuner.search.run.label}: {100 * best.accuracy:.2f} % on the validation data, best of "
            f"{best.finished} trials; {tuner.folder}/: best.toml, trials.csv, search.png",
            highlight=False,
        )
    print(best_toml([(tuner.search, best) for tuner, best in zip(tuners, found, strict=True)]), end="")


def run_all(tuners: list[Tuner], console: Console, pool: WorkPool) -> list[Found]:
    """Run the searches, several at once or one with several trials at once, and draw the figure of each."""
    from fedmim.report.progress import watching
    from fedmim.report.search_figure import write_search

    found, failures = {}, []
    with watching([run for tuner in tuners for run in trials_left(tuner)], console, jobs=pool.count) as display:
        one = len(tuners) == 1  # the pool is for its trials
        for tuner, answer in [(tuners[0], tuners[0](display, pool))] if one else answers_of(tuners, pool, display):
            if isinstance(answer, Exception) and isinstance(pool, ThisProcess):
                raise answer
            if isinstance(answer, Exception):
                failures.append(Failure(tuner.search.run, answer))
            else:
                found[id(tuner)] = answer
                write_search(tuner.search, tuner.folder / TRIALS)
    raise_failures(failures, "the same command retries them")
    return [found[id(tuner)] for tuner in tuners]


def read_jobs(argv: list[str]) -> tuple[int | None, bool]:
    """--jobs, and whether there is --scale. `read_search` has rejected everything else that is wrong."""
    selected = select(argv)
    return selected.jobs, selected.scale is not None


def read_search(method: str, argv: list[str]) -> tuple[Search, Path]:
    """Parse the command line into a search and the folder for its results."""
    start = configured_run(replace(select(argv), method=method)).replace(validation=VALIDATION)
    config = start.config
    parts = {
        "tune": TuneOptions(),
        "problem": config.problem,
        "settings": config.settings,
        "execution": config.execution,
        **method_parts(start.algorithm),
    }
    flags = parse("fedmim tune METHOD", ABOUT_TUNE, argv, parts, prefixed=WRAPPERS, without=WITHOUT)
    options = flags.values["tune"]
    check_jobs(options["jobs"])
    fixed = full_paths(flags.changes("problem", "settings")) | given_method_values(flags)
    search = of_scale(method, fixed, options["scale"]) if options["scale"] else of_run(start, fixed)
    search = replace(search, run=search.run.replace(**full_paths(flags.changes("execution"))))
    if options["space"]:
        search = replace(search, space=space_of(method, set(fixed), Path(options["space"])))
    if options["trials"] is not None:
        search = replace(search, trials=options["trials"])
    scale = Path(options["scale"]).stem if options["scale"] else None
    return search, Path(options["out"] or (f"results/{scale}/tune" if scale else "runs/tune"))


def of_run(start: Run, fixed: dict[str, Any]) -> Search:
    """A search that starts from the defaults of the data set and the given settings."""
    run = Run.make(start.method, start.plain() | fixed, where="tune")
    return Search(run, space_of(start.method, set(fixed)), trials=20)


def of_scale(method: str, fixed: dict[str, Any], name: str) -> Search:
    """The search that `fedmim reproduce` runs at this scale."""
    scale = Scale.read(name)
    data = fixed.pop("data", "cifar10")
    return search_for(TableRow(title_of(method), method, fixed), data, scale, {})
