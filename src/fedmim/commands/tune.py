"""`fedmim tune`: a method's learning rate and hyper-parameters, searched on held-out training data."""

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
from fedmim.errors import UserError
from fedmim.experiments.config import full_paths
from fedmim.experiments.methods import title_of
from fedmim.experiments.run import Run
from fedmim.experiments.tune import TRIALS, Found, Search, Tuner, best_toml, space_of
from fedmim.flags import parse, select
from fedmim.reproduction.experiment import TableRow
from fedmim.reproduction.plan import search_for, trials_left
from fedmim.reproduction.scale import Scale
from fedmim.signals import resumable

ABOUT_TUNE = """Search a method's learning rate and its own hyper-parameters with Optuna: all else is fixed, a part of
the training data is held out to judge by, the test data is never looked at, hopeless trials stop early. A setting that
is given is fixed, not searched. Prints the best settings as TOML for `run` and `compare`. The same command goes on with
a search that was stopped. METHOD: a name of `fedmim methods`, several with commas, or file.py:ClassName."""
VALIDATION = 0.1


@dataclass(frozen=True)
class TuneOptions:
    """The flags of the command itself."""

    trials: int | None = None
    """How many settings to try; unless given, 20, or as many as the scale has."""
    scale: str | None = None
    """Search for the tables of this scale: cpu, paper or a TOML file."""
    space: str | None = None
    """TOML file with what is searched, instead of the built-in ranges."""
    config: str | None = None
    """TOML file with settings by the names of these flags; flags win over it."""
    out: str | None = None
    """Folder for the search; unless given, runs/tune, or results/SCALE/tune."""


def tune(argv: list[str]) -> None:
    """Search the settings of one method, or of several."""
    if not argv or not all(argv[0].split(",")) or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        raise UserError("tune: name the method first, as in `fedmim tune fedmim --trials 20`")
    methods, rest = ("fedmim", argv) if argv[0].startswith("-") else (argv[0], argv[1:])
    searches = [read_search(method, rest) for method in methods.split(",")]
    tuners = [Tuner(search, folder / search.name) for search, folder in searches]
    if left := [tuner.search.run for tuner in tuners if not tuner.finished]:
        check_runs(left, Output())
    console = Console(stderr=True)
    with resumable("the same command resumes it"):
        found = run_all(tuners, console)
    for tuner, best in zip(tuners, found, strict=True):
        console.print(
            f"{tuner.search.run.label}: {100 * best.accuracy:.2f} % on the validation part, the best of "
            f"{best.finished} trials; {tuner.folder}/: best.toml, trials.csv, search.png",
            highlight=False,
        )
    print(best_toml([(tuner.search, best) for tuner, best in zip(tuners, found, strict=True)]), end="")


def run_all(tuners: list[Tuner], console: Console) -> list[Found]:
    """One search after the other, each with its figure."""
    from fedmim.report.progress import watching
    from fedmim.report.search_figure import write_search

    found = []
    with watching([run for tuner in tuners for run in trials_left(tuner)], console) as display:
        for tuner in tuners:
            found.append(tuner(display))
            write_search(tuner.search, tuner.folder / TRIALS)
    return found


def read_search(method: str, argv: list[str]) -> tuple[Search, Path]:
    """The search that the command line describes, and the folder for such searches."""
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
    """A search from the defaults of the data set and what is given."""
    run = Run.make(start.method, start.plain() | fixed, where="tune")
    return Search(run, space_of(start.method, set(fixed)), trials=20)


def of_scale(method: str, fixed: dict[str, Any], name: str) -> Search:
    """The search that `fedmim reproduce` makes at this scale."""
    scale = Scale.read(name)
    data = fixed.pop("data", "cifar10")
    return search_for(TableRow(title_of(method), method, fixed), data, scale, {})
