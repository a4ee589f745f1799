"""`fedmim tune`: a method's rate and hyper-parameters, searched on held-out training data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fedmim.errors import UserError
from fedmim.experiments.compare import TaskCache, task_of
from fedmim.experiments.config import Config
from fedmim.experiments.layers import File
from fedmim.experiments.methods import Run, find
from fedmim.experiments.tune import TRIALS, Found, Search, Tuner, best_toml, space_of
from fedmim.flags import Flag, Group, flags_of, given, parse, peek
from fedmim.reproduction.experiment import TableRow
from fedmim.reproduction.plan import search_for, trials_left
from fedmim.reproduction.scale import SCALES, Scale

ABOUT = """Search a method's rate and its own hyper-parameters with Optuna: all else is fixed, a part of the training
data is held out to judge by, the test data is never looked at, hopeless trials stop early. A setting that is given is
fixed, not searched. Prints the best settings as TOML for `run` and `compare`. The same command goes on with a search
that was stopped. METHOD: a name of `fedmim methods`, several with commas, or file.py:ClassName."""
USAGE = "fedmim tune METHOD"
VALIDATION = 0.1


def tune(argv: list[str]) -> None:
    """Search the settings of one method, or of several."""
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        raise UserError("tune: name the method first, as in `fedmim tune fedmim --trials 20`")
    methods, rest = ("fedmim", argv) if argv[0].startswith("-") else (argv[0], argv[1:])
    searches = [read(method, rest) for method in methods.split(",")]
    data_dir = peek(rest, "data-dir")
    tasks = TaskCache(lambda config: task_of(replace(config, data_dir=data_dir)))
    tuners = [Tuner(search, folder / search.name, tasks) for search, folder in searches]
    console = Console(stderr=True)
    try:
        found = run_all(tuners, console)
    except KeyboardInterrupt:
        console.print("fedmim: stopped; the same command goes on from here")
        raise SystemExit(130) from None
    for tuner, best in zip(tuners, found, strict=True):
        console.print(
            f"{tuner.search.run.label}: {100 * best.accuracy:.2f} % on the validation part, the best of "
            f"{best.finished} trials; {tuner.folder}/: best.toml, trials.csv, search.png",
            highlight=False,
        )
    print(best_toml([(tuner.search, best) for tuner, best in zip(tuners, found, strict=True)]), end="")


def run_all(tuners: list[Tuner], console: Console) -> list[Found]:
    """One search after the other, each with its picture."""
    from fedmim.report.progress import watching
    from fedmim.report.search_figure import write_search

    found = []
    with watching([run for tuner in tuners for run in trials_left(tuner)], console) as display:
        for tuner in tuners:
            found.append(tuner(display))
            write_search(tuner.search, tuner.folder / TRIALS)
    return found


def read(method: str, argv: list[str]) -> tuple[Search, Path]:
    """The search that the command line describes, and the folder for such searches."""
    file = File.read(peek(argv, "config"))
    start = Run.make(method, file.values(method, peek(argv, "data")), where=file.path)
    options = [
        Flag("trials", int | None, None, "How many settings to try; unless given, 20, or as many as the scale has."),
        Flag("scale", str | None, None, f"Search for the tables of this scale: {', '.join(SCALES)} or a TOML file."),
        Flag("space", str | None, None, "TOML file with what is searched, in place of the built-in ranges."),
        Flag("config", str | None, None, "TOML file with settings by the names of these flags; flags win over it."),
        Flag("out", str | None, None, "Folder for the search; unless given, runs/tune, or results/SCALE/tune."),
    ]
    groups = [
        Group("tune", options),
        Group("experiment", flags_of(Config, vars(start.config) | {"validation": VALIDATION})),
        Group("method", flags_of(find(method), vars(start.algorithm))),
    ]
    values = parse(USAGE, ABOUT, groups, argv)
    asked, flags = values["tune"], given(argv)
    fixed = {name: value for name, value in (values["experiment"] | values["method"]).items() if name in flags}
    fixed.pop("data_dir", None)
    space = Path(asked["space"]) if asked["space"] else None
    search = of_scale(method, fixed, asked["scale"]) if asked["scale"] else own(method, start, fixed)
    if space is not None:
        search = replace(search, space=space_of(method, set(fixed), space))
    if asked["trials"] is not None:
        search = replace(search, trials=asked["trials"])
    scale = Path(asked["scale"]).stem if asked["scale"] else None
    return search, Path(asked["out"] or (f"results/{scale}/tune" if scale else "runs/tune"))


def own(method: str, start: Run, fixed: dict[str, Any]) -> Search:
    """A search from the defaults of the data set and what is given."""
    values = {**vars(start.config), **vars(start.algorithm), "data_dir": None, "validation": VALIDATION} | fixed
    return Search(Run.make(method, values, where="tune"), space_of(method, set(fixed)), trials=20)


def of_scale(method: str, fixed: dict[str, Any], name: str) -> Search:
    """The search that `fedmim reproduce` makes at this scale."""
    scale = Scale.read(name)
    data = fixed.pop("data", "cifar10")
    return search_for(TableRow(find(method).title, method, fixed), data, scale, {})
