"""The command `fedmim`: parses, calls, prints. torch is imported when something is trained, not before."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from fedmim import __version__
from fedmim.commands.output import LOUD, Output, free_folder, output_flags
from fedmim.errors import UserError, unknown
from fedmim.report.wording import describe_config

if TYPE_CHECKING:
    from fedmim.experiments.compare import TaskCache
    from fedmim.experiments.methods import Run
    from fedmim.experiments.runs import RunFolder
    from fedmim.results.method_results import MethodResults
    from fedmim.simulation.loop import Record

OVERVIEW = """\
usage: fedmim COMMAND [OPTIONS]

Federated learning on heterogeneous data: FedMIM and its baselines.

commands:
  compare   train several methods on the same clients; a table, a page, a picture and results.json
  run       train one method
  reproduce the paper's tables and figures, its own numbers beside the measured ones
  tune      search a method's rate and hyper-parameters on held-out training data
  report    the page of any runs: one HTML file with charts, verdict, tables and commands
  plot      the same charts as PNG and SVG for a paper
  watch     the page of runs under way, served on this machine
  methods   list the methods with their options and references
  data      list the data sets and what is found; `fedmim data fetch NAME` downloads one
  theory    what the convergence theorems say: rates, bounds, constants of a task, advice
  flower    `fedmim flower new DIR` starts a Flower app of your own: the same methods on real machines

first steps:
  fedmim compare                                        the paper's seven methods on digits, about a minute
  fedmim compare --methods fedavg,fedmim --seeds 0,1,2  two of them, three seeds
  fedmim run --method fedmim --alpha 0.6,0.3 --out runs/a
  fedmim run --resume --out runs/a                      go on where a run was stopped
  fedmim COMMAND --help                                 all options of a command
"""
OUT = "Folder for what is written; unless given, a new one below runs/."
CONFIG = "TOML file with settings by the names of these flags; flags win over it."
CHECKPOINT = "Write a checkpoint after the first round to end so many seconds after the last one."
METHODS = (
    "Which methods, with commas; unless given, the seven of the paper. A variant has settings of its own, with values "
    "as in TOML: \"fedavg,fedmim(alpha=[0.9],label='one step'),fedmim(lr=0.5)\"."
)


# Commands with files of their own, imported when they are called for.
ELSEWHERE = {
    "reproduce": "fedmim.reproduction.command:reproduce",
    "tune": "fedmim.commands.tune:tune",
    "report": "fedmim.commands.report:report",
    "plot": "fedmim.commands.report:plot",
    "watch": "fedmim.commands.report:watch",
    "theory": "fedmim.commands.theory:theory",
    "flower": "fedmim.flower.new:command",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a mistake of the user is one line and exit code 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    commands = {"compare": compare, "run": run, "methods": methods, "data": data}
    if not words or words[0] in ("-h", "--help"):
        print(OVERVIEW, end="")
        return 0
    if words[0] == "--version":
        print(f"fedmim {__version__}")
        return 0
    try:
        if words[0] not in {**commands, **ELSEWHERE}:
            raise unknown("command", words[0], [*commands, *ELSEWHERE])
        warnings.showwarning = lambda message, *_, **__: print(f"fedmim: warning: {message}", file=sys.stderr)
        command = commands.get(words[0]) or resolve_name(ELSEWHERE[words[0]])
        command(words[1:])
    except UserError as error:
        print(f"fedmim: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output went away, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"fedmim: {error.filename or 'file'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fedmim: stopped; --resume with the same --out goes on from here", file=sys.stderr)
        return 130
    return 0


def run(argv: list[str]) -> None:
    """Train one method."""
    from fedmim.experiments.compare import TaskCache
    from fedmim.experiments.config import Config
    from fedmim.experiments.layers import File
    from fedmim.experiments.methods import Run, find
    from fedmim.experiments.runs import RunFolder, differences
    from fedmim.flags import Flag, Group, flags_of, parse, peek
    from fedmim.results.loading import load_runs
    from fedmim.results.method_results import by_label

    out, resume = peek(argv, "out"), "--resume" in argv
    if resume:
        if out is None:
            raise UserError("resume: name the folder of the run with --out")
        RunFolder.open(Path(out))  # says what is wrong with it
    file = File.read(str(RunFolder.config_of(Path(out))) if out and resume else peek(argv, "config"))
    method = peek(argv, "method") or file.command.get("method", "fedmim")
    start = Run.make(method, file.values(method, peek(argv, "data")), where=file.path)
    options = [
        Flag("method", str, method, "Which method, see `fedmim methods`; file.py:ClassName for an own one."),
        Flag("out", str | None, None, OUT),
        Flag("resume", bool, False, "Go on with the run in --out, to the same bits as if it had never stopped."),
        Flag("config", str | None, None, CONFIG),
        Flag("checkpoint_seconds", float, 10.0, CHECKPOINT),
        Flag("label", str | None, file.command.get("label"), "How tables and pictures call the run."),
        *output_flags(),
    ]
    groups = [
        Group("run", options),
        Group("experiment", flags_of(Config, vars(start.config))),
        Group("method", flags_of(find(method), vars(start.algorithm))),
    ]
    values = parse("fedmim run", f"Train one method, here {start.algorithm.title}.", groups, argv)
    settings = with_full_path(values["experiment"]) | values["method"]
    asked = Run.make(method, settings, values["run"]["label"], where="fedmim run")
    output, tasks = Output.of(values["run"]), TaskCache()
    if out and resume:
        folder = RunFolder.open(Path(out))
        if changed := differences(asked, folder.run):
            raise UserError(f"{out}: a run goes on with its own settings; {', '.join(changed)} cannot change")
        if asked.config.rounds != folder.run.config.rounds:
            folder.extend(asked.config.rounds)
    else:
        load(tasks, [asked], output)
        name = f"{asked.config.data.split(':')[0]}-{asked.algorithm.title.lower()}"
        folder = RunFolder.create(Path(out) if out else free_folder(name), asked)
    train([folder], tasks, values["run"]["checkpoint_seconds"], output)
    show(by_label(load_runs([folder]), None), None, folder.path, output)
    output.say(f"\n{folder.path}/: config.toml, metrics.jsonl, model.safetensors")


def compare(argv: list[str]) -> None:
    """Train several methods on the same clients."""
    from fedmim.experiments.compare import Comparison, TaskCache, prepare
    from fedmim.experiments.config import Config
    from fedmim.experiments.layers import File, comparison
    from fedmim.experiments.methods import Run, find, parse_list
    from fedmim.flags import Flag, Group, flags_of, given, parse, peek
    from fedmim.report.comparison_plot import comparison_plot
    from fedmim.report.page import write_page
    from fedmim.results.grouping import group_runs
    from fedmim.results.loading import load_runs
    from fedmim.results.method_results import by_label
    from fedmim.results.results_json import write_json

    file = File.read(peek(argv, "config"))
    listed = peek(argv, "methods")
    entries = file.entries() if listed is None else parse_list(listed)
    base = file.values(None, peek(argv, "data"))
    options = [
        Flag("methods", str | None, None, METHODS),
        Flag(
            "seeds",
            tuple[int, ...],
            tuple(file.command.get("seeds", (0,))),
            "One run of each method for each seed.",
        ),
        Flag(
            "target",
            float | None,
            file.command.get("target"),
            "Accuracy for the column of rounds to reach it.",
        ),
        Flag("out", str | None, None, OUT),
        Flag("resume", bool, False, "Go on with the comparison in --out; finished runs are not repeated."),
        Flag("config", str | None, None, CONFIG),
        Flag("checkpoint_seconds", float, 10.0, CHECKPOINT),
        *output_flags(),
    ]
    kinds = {method: find(method) for method, _ in entries}
    groups = [Group("comparison", options), Group("experiment", flags_of(Config, base, without=["seed"]))]
    for name, kind in kinds.items():
        if name.isidentifier():  # a path cannot be part of a flag
            algorithm = Run.make(name, file.values(name, None), where=file.path).algorithm
            groups.append(Group(name, flags_of(kind, vars(algorithm)), prefix=True))
    values = parse("fedmim compare", "Train several methods on the same data and clients.", groups, argv)
    flags, chosen = given(argv), values["comparison"]
    out = chosen["out"]
    if chosen["resume"] and out is None:
        raise UserError("resume: name the folder of the comparison with --out")
    if chosen["resume"] and flags <= {"out", "resume", "checkpoint_seconds"} | {flag.name for flag in output_flags()}:
        asked = Comparison.open(Path(out))
    else:
        settings = {name: value for name, value in with_full_path(values["experiment"]).items() if name in flags}
        own = {
            name: {option: value for option, value in values[name].items() if f"{name}.{option}" in flags}
            for name in kinds
            if name in values
        }
        asked = comparison(file, entries, settings, own, chosen["seeds"], chosen["target"])
    output, tasks = Output.of(chosen), TaskCache()
    if not chosen["resume"]:
        load(tasks, [each.with_seed(asked.seeds[0]) for each in asked.runs], output)
    path = Path(out) if out else free_folder(f"compare-{asked.runs[0].config.data.split(':')[0]}")
    folders = prepare(asked, path, chosen["resume"])
    train(folders, tasks, chosen["checkpoint_seconds"], output)
    results = load_runs(folders)
    methods = by_label(results, asked.target)
    write_json(methods, asked.target, path / "results.json")
    comparison_plot(methods, describe_config(asked.runs[0].config), path / "comparison.png")
    write_page(group_runs(results, asked.target), path / "report.html")
    show(methods, asked.target, path, output)
    output.say(f"\n{path}/: report.html, comparison.png, results.json, and a folder for each run")
    output.say(f"open {(path / 'report.html').resolve().as_uri()}")


def methods(argv: list[str]) -> None:
    """List the methods with their options and references."""
    from fedmim.algorithms import METHODS as KNOWN
    from fedmim.experiments.methods import find
    from fedmim.report.listing import print_method, print_methods

    names = [word for word in argv if not word.startswith("-")]
    if "-h" in argv or "--help" in argv:
        print("usage: fedmim methods [NAME]\n\nList the methods, or show one with its formula, options and reference.")
    elif names:
        print_method(names[0], find(names[0]))
    else:
        print_methods(KNOWN)


def data(argv: list[str]) -> None:
    """List the data sets, or fetch one."""
    from fedmim.flags import peek

    folder = peek(argv, "data-dir")
    words = [word for word in argv if not word.startswith("-") and word != folder]
    if "-h" in argv or "--help" in argv:
        print(
            "usage: fedmim data [--data-dir DIR]\n       fedmim data fetch NAME [--data-dir DIR]\n\n"
            "List the data sets and what is found of them, or download one from its official address.\n"
            "DIR is $FEDMIM_DATA unless given, else ./data."
        )
    elif not words:
        from fedmim.report.listing import print_data

        print_data(folder)
    elif words[0] == "fetch" and len(words) == 2:
        from fedmim.data import fetch

        print(f"{words[1]} is in {fetch(words[1], folder)}")
    else:
        raise UserError("data: write `fedmim data` or `fedmim data fetch NAME`")


def train(folders: Sequence[RunFolder], tasks: TaskCache, checkpoint_seconds: float, output: Output = LOUD) -> None:
    """Run what is not finished yet, with progress."""
    from rich.console import Console

    from fedmim.report.progress import watching
    from fedmim.simulation.callbacks import RunInfo, telling

    with watching([folder.run for folder in folders], Console(stderr=True), output.quiet) as display:
        for folder in folders:
            run = folder.run
            if folder.finished:
                display.skip(run)
                continue
            with telling(output.callbacks, RunInfo.of(folder.path.name, run.algorithm, run.config)) as tell:

                def watch(record: Record, run: Run = run, tell: Callable[[Record], None] = tell) -> None:
                    display.record(run, record)
                    tell(record)

                folder.train(tasks(run.config), watch, checkpoint_seconds)


def show(methods: Sequence[MethodResults], target: float | None, folder: Path, output: Output = LOUD) -> None:
    """Print the results of these methods: a table, or JSON."""
    from rich.console import Console

    from fedmim.report.terminal_table import fitting_table, notes
    from fedmim.results.results_json import as_json

    if output.json:
        print(json.dumps({"folder": str(folder), **as_json(methods, target)}))
    if output.json or output.quiet:
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print()
    console.print(describe_config(methods[0].run.config), style="bold", highlight=False)
    console.print(fitting_table(methods, target, console))
    console.print(notes(methods, target), style="dim", highlight=False)


def load(tasks: TaskCache, runs: Sequence[Run], output: Output = LOUD) -> None:
    """Make everything ready once: what is wrong with data, model or device shows before any folder is made."""
    from rich.console import Console

    from fedmim.simulation.loop import rounds

    console = Console(stderr=True, quiet=output.quiet)
    with console.status(f"loading {runs[0].config.data}"):
        # Backwards, so that the first one's task is at hand afterwards.
        engines = {rounds(run.algorithm, tasks(run.config), run.config).engine for run in reversed(runs)}
    console.print(f"engine: {', '.join(sorted(engines))}")


def with_full_path(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the data folder as a full path, so that a run can be resumed from anywhere."""
    folder = settings["data_dir"]
    return settings | ({"data_dir": str(Path(folder).resolve())} if folder else {})
