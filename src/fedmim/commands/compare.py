"""`fedmim compare`: train several methods on the same clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmim.algorithms import METHODS
from fedmim.commands.output import Output, OutputOptions, free_folder
from fedmim.commands.run import check_resume, how_to_resume
from fedmim.commands.training import check_runs, show_results, tell_diverged, train_folders
from fedmim.experiments.comparison import Comparison, existing_folders, run_folders
from fedmim.experiments.config import Config, full_paths
from fedmim.experiments.config_file import ConfigFile, added_runs, new_comparison
from fedmim.experiments.methods import Variant, parse_list
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder, check_checkpoint_seconds
from fedmim.files import folder_lock, holding, make_folder
from fedmim.flags import Flags, parse, select
from fedmim.results.loading import load_runs
from fedmim.results.method_results import by_label
from fedmim.signals import resumable


@dataclass(frozen=True)
class CompareOptions:
    """The flags of the command itself."""

    methods: str | None = None
    """Which methods, with commas; unless given, the seven of the paper. A variant has settings of its own, with values
    as in TOML: "fedavg,fedmim(alpha=[0.9],label='one step'),feddyn+leap(alpha=[0.3,0.2],lr=0.2)"."""
    seeds: tuple[int, ...] = (0,)
    """One run of each method for each seed."""
    target: float | None = None
    """Accuracy for the column of rounds to reach it."""
    out: str | None = None
    """Folder for what is written; unless given, a new one below runs/."""
    resume: bool = False
    """Resume the comparison in --out; finished runs are not repeated. The settings of its runs are fixed; --rounds,
    --eval-every and the execution options may change, --methods and --seeds add runs."""
    config: str | None = None
    """TOML file with settings by the names of these flags; flags win over it."""
    checkpoint_seconds: float = 10.0
    """Write a checkpoint after the first round that ends so many seconds after the last one."""


def compare(argv: list[str]) -> None:
    """Train several methods on the same clients."""
    asked, options, output = read_comparison(argv)
    check_checkpoint_seconds(options["checkpoint_seconds"])
    path = Path(options["out"] or free_folder(f"compare-{asked.runs[0].config.problem.data.split(':')[0]}"))
    existing_folders(asked, path, options["resume"])
    check_runs([each.replace(seed=asked.seeds[0]) for each in asked.runs], output)
    make_folder(path)
    with holding(folder_lock(path)):  # one process per comparison
        folders = run_folders(asked, path, options["resume"])
        with resumable(how_to_resume("compare", path)):
            train_folders(folders, options["checkpoint_seconds"], output)
            write_results(folders, asked, path, output)


def write_results(folders: Sequence[RunFolder], asked: Comparison, path: Path, output: Output) -> None:
    """The table on the terminal; results.json, the figure and the page in the folder."""
    from fedmim.report.comparison_plot import comparison_plot
    from fedmim.report.page import write_page
    from fedmim.report.wording import describe_config
    from fedmim.results.grouping import group_runs
    from fedmim.results.results_json import write_json

    results = load_runs(folders)
    methods = by_label(results, asked.target)
    write_json(methods, asked.target, path / "results.json")
    comparison_plot(methods, describe_config(asked.runs[0].config), path / "comparison.png")
    write_page(group_runs(results, asked.target), path / "report.html")
    show_results(methods, asked.target, path, output)
    output.say(f"\n{path}/: report.html, comparison.png, results.json, and a folder for each run")
    output.say(f"open {(path / 'report.html').resolve().as_uri()}")
    tell_diverged(results)


def read_comparison(argv: list[str]) -> tuple[Comparison, dict[str, Any], Output]:
    """The comparison that the command line describes, the other options, and the output."""
    selected = select(argv)
    if selected.resume:
        check_resume(selected, "comparison")
        saved = Comparison.open(Path(selected.out or ""))
        added = parse_list(selected.methods) if selected.methods else []
        options = CompareOptions(seeds=saved.seeds, target=saved.target)
        flags = read_compare_flags(argv, options, saved.runs[0].config, methods_of(saved, added))
        asked = resumed(saved, added, flags)
    else:
        file = ConfigFile.read(selected.config)
        variants = parse_list(selected.methods) if selected.methods else file.variants()
        options = CompareOptions(seeds=file.seeds(), target=file.target())
        base = Config.of(file.values(None, selected.data), file.path)
        flags = read_compare_flags(argv, options, base, [method for method, _ in variants], file)
        chosen = flags.values["comparison"]
        asked = new_comparison(file, variants, changes(flags), method_changes(flags), chosen["seeds"], chosen["target"])
    return asked, flags.values["comparison"], Output.of(flags.values["output"])


def read_compare_flags(
    argv: list[str], options: CompareOptions, base: Config, methods: list[str], file: ConfigFile | None = None
) -> Flags:
    """Parse the command line; the hyper-parameters of each method are spelt --method.name."""
    file = file or ConfigFile()
    parts: dict[str, Any] = {
        "comparison": options,
        "problem": base.problem,
        "settings": base.settings,
        "execution": base.execution,
        "output": OutputOptions(),
    }
    methods = [name for name in dict.fromkeys(methods) if name.isidentifier()]  # a path cannot be part of a flag
    for name in methods:
        parts[name] = Run.make(name, file.values(name, None), where=file.path).algorithm
    about = "Train several methods on the same data and clients."
    return parse("fedmim compare", about, argv, parts, prefixed=methods, without={"settings": ["seed"]})


def resumed(saved: Comparison, added: list[Variant], flags: Flags) -> Comparison:
    """The saved comparison, overridden by the flags, with the runs that they add."""
    own = method_changes(flags)
    runs = [
        Run.make(run.method, run.plain() | changes(flags) | own.get(run.method, {}), run.label, where=run.label)
        for run in saved.runs
    ]
    more = added_runs(runs, added, own)
    chosen = flags.values["comparison"]
    return Comparison((*runs, *more), tuple(dict.fromkeys((*saved.seeds, *chosen["seeds"]))), chosen["target"])


def changes(flags: Flags) -> dict[str, Any]:
    """The settings that were given for all methods."""
    return full_paths(flags.changes("problem", "settings", "execution"))


def method_changes(flags: Flags) -> dict[str, dict[str, Any]]:
    """The hyper-parameters that were given for each method."""
    return {name: flags.changes(name, prefixed=True) for name in flags.values if name in METHODS}


def methods_of(saved: Comparison, added: list[Variant]) -> list[str]:
    """The methods of a comparison and of what is added to it."""
    return [*(run.method for run in saved.runs), *(method for method, _ in added)]
