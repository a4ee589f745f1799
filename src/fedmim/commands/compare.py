"""`fedmim compare`: train several methods on the same clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmim.algorithms import METHODS
from fedmim.commands.output import Output, OutputOptions, free_folder
from fedmim.commands.run import check_resume, how_to_resume
from fedmim.commands.training import check_runs, show_results, tell_diverged, train_folders
from fedmim.experiments.comparison import Comparison, existing_folders, run_folders
from fedmim.experiments.config import Config, full_paths
from fedmim.experiments.config_file import DEMO, ConfigFile, added_runs, new_comparison
from fedmim.experiments.job_count import check_jobs
from fedmim.experiments.methods import Variant, parse_list
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import check_checkpoint_seconds
from fedmim.experiments.works import raise_failures
from fedmim.files import folder_lock, holding, make_folder
from fedmim.flags import Flags, parse, select
from fedmim.results.loading import load_results
from fedmim.results.method_results import RunResult, by_label
from fedmim.signals import resumable


@dataclass(frozen=True)
class CompareOptions:
    """The options of the command."""

    methods: str | None = None
    """Comma-separated methods; default: the seven of the paper; without --data and --config, those of the demo. A
    method can have its own settings in brackets, with values as in TOML:
    "fedavg,fedmim(alpha=[0.9],label='one step'),feddyn+leap(alpha=[0.3,0.2],lr=0.2)"."""
    seeds: tuple[int, ...] = (0,)
    """Comma-separated seeds. Each method is run once per seed."""
    target: float | None = None
    """Target accuracy, between 0 and 1. The table shows the rounds that each method needs to reach it; default: that
    of the data set."""
    out: str | None = None
    """Output folder; default: a new folder in runs/."""
    resume: bool = False
    """Resume the comparison in --out. Finished runs are not repeated. The settings are fixed, except --rounds,
    --eval-every, --until, --patience and the execution options. --methods and --seeds add runs."""
    config: str | None = None
    """TOML file with settings, named like these flags. Flags override the file."""
    checkpoint_seconds: float = 10.0
    """Minimum number of seconds between two checkpoints. 0 writes one after every round."""
    jobs: int | None = None
    """Number of runs to train at once, each with one core; none: one per core if it saves time, memory permitting.
    The results are the same, bit for bit."""


def compare_command(argv: list[str]) -> None:
    """Train several methods on the same clients."""
    asked, options, output = read_comparison(argv)
    path = Path(options["out"] or free_folder(f"compare-{asked.runs[0].config.problem.kind}"))
    how, again = (how_to_resume("compare", path, what) for what in ("resumes it", "retries them"))

    def show(results: Sequence[RunResult]) -> None:
        show_results(by_label(results, asked.target), asked.target, path, output)
        output.say(f"\n{path}/: report.html, comparison.png, results.json and one folder per run")
        output.say(f"open {(path / 'report.html').resolve().as_uri()}")
        tell_diverged(results)

    training = ComparisonTraining(options["resume"], options["jobs"], options["checkpoint_seconds"], how, again)
    training(asked, path, output, show)


@dataclass(frozen=True)
class ComparisonTraining:
    """How to train a comparison."""

    resume: bool
    jobs: int | None
    checkpoint_seconds: float
    how_to_resume: str
    how_to_retry: str

    def __call__(
        self, asked: Comparison, path: Path, output: Output, show: Callable[[Sequence[RunResult]], None]
    ) -> None:
        """Train all runs and write the results to the folder. `show` gets those of the runs that succeeded."""
        check_checkpoint_seconds(self.checkpoint_seconds)
        check_jobs(self.jobs)
        there = existing_folders(asked, path, self.resume)
        left = sum(name not in there or not there[name].finished for name in asked.folder_names())
        first = [each.replace(seed=asked.seeds[0]) for each in asked.runs]
        with check_runs(first, output, self.jobs, left) as pool:
            make_folder(path)
            with holding(folder_lock(path)):  # one process per comparison
                folders = run_folders(asked, path, self.resume)
                with resumable(self.how_to_resume):
                    with pool:  # its processes end before the lock is released
                        failures = train_folders(folders, self.checkpoint_seconds, output, pool)
                    failed = {id(failure.run) for failure in failures}
                    if trained := [folder for folder in folders if id(folder.run) not in failed]:
                        results = load_results(trained)
                        write_results(results, asked, path)
                        show(results)
                    raise_failures(failures, self.how_to_retry)


def write_results(results: Sequence[RunResult], asked: Comparison, path: Path) -> None:
    """Write results.json, the figure and the page to the folder."""
    from fedmim.report.comparison_plot import comparison_plot
    from fedmim.report.page import write_page
    from fedmim.report.wording import describe_configs
    from fedmim.results.grouping import group_runs
    from fedmim.results.results_json import write_json

    methods = by_label(results, asked.target)
    write_json(methods, asked.target, path / "results.json")
    comparison_plot(methods, describe_configs([run.config for run in asked.runs]), path / "comparison.png")
    write_page(group_runs(results, asked.target), path / "report.html")


def read_comparison(argv: list[str]) -> tuple[Comparison, dict[str, Any], Output]:
    """Parse the command line into the comparison, the other options, and the output."""
    selected = select(argv)
    if selected.resume:
        check_resume(selected, "comparison")
        saved = Comparison.open(Path(selected.out or ""))
        added = parse_list(selected.methods) if selected.methods else []
        options = CompareOptions(seeds=saved.seeds, target=saved.target)
        flags = read_compare_flags(argv, options, saved.runs[0].config, methods_of(saved, added))
        asked = resumed(saved, added, flags)
    else:
        demo = not (selected.config or selected.data or selected.methods)
        file = ConfigFile.read(str(DEMO) if demo else selected.config)
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
    """Parse the command line. The hyper-parameters of each method are --method.name."""
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
    about = (
        "Train several methods on the same data and clients. Without --methods, --data and --config, "
        "run the demo: the methods of the paper and the best of the others on MNIST-1D, each with tuned settings."
    )
    return parse("fedmim compare", about, argv, parts, prefixed=methods, without={"settings": ["seed"]})


def resumed(saved: Comparison, added: list[Variant], flags: Flags) -> Comparison:
    """The saved comparison with the changes and the additional runs given by the flags."""
    own = method_changes(flags)
    runs = [
        Run.make(run.method, run.plain() | changes(flags) | own.get(run.method, {}), run.label, where=run.label)
        for run in saved.runs
    ]
    more = added_runs(runs, added, own)
    chosen = flags.values["comparison"]
    return Comparison((*runs, *more), tuple(dict.fromkeys((*saved.seeds, *chosen["seeds"]))), chosen["target"])


def changes(flags: Flags) -> dict[str, Any]:
    """The settings given for all methods."""
    return full_paths(flags.changes("problem", "settings", "execution"))


def method_changes(flags: Flags) -> dict[str, dict[str, Any]]:
    """The hyper-parameters given for each method."""
    return {name: flags.changes(name, prefixed=True) for name in flags.values if name in METHODS}


def methods_of(saved: Comparison, added: list[Variant]) -> list[str]:
    """The methods of a saved comparison and of the variants added to it."""
    return [*(run.method for run in saved.runs), *(method for method, _ in added)]
