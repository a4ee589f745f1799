"""`fedmim run`: train one method."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from fedmim.algorithms import WRAPPERS
from fedmim.commands.method_flags import WITHOUT, method_parts, method_values
from fedmim.commands.output import Output, OutputOptions, free_folder
from fedmim.commands.training import check_runs, show_results, tell_diverged, train_folders
from fedmim.errors import UserError
from fedmim.experiments.config import full_paths
from fedmim.experiments.config_file import ConfigFile
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder, check_checkpoint_seconds
from fedmim.flags import Selection, parse, select
from fedmim.results.loading import load_results
from fedmim.results.method_results import by_label
from fedmim.signals import resumable


@dataclass(frozen=True)
class RunOptions:
    """The options of the command."""

    method: str = "fedmim"
    """The method: a name from `fedmim methods`, or file.py:ClassName for your own. +leap, +sharp, +topk
    and +quantise add a wrapper."""
    label: str = ""
    """Name of the run in tables and figures; default: the name of the method."""
    out: str | None = None
    """Output folder; default: a new folder in runs/."""
    resume: bool = False
    """Resume the run in --out. The result is the same, bit for bit, as without the interruption. The settings are
    fixed, except --rounds, --eval-every, --until, --patience, --label and the execution options."""
    config: str | None = None
    """TOML file with settings, named like these flags. Flags override the file."""
    checkpoint_seconds: float = 10.0
    """Minimum number of seconds between two checkpoints. 0 writes one after every round."""


def run(argv: list[str]) -> None:
    """Train one method."""
    selected = select(argv)
    base = saved_run(selected) if selected.resume else configured_run(selected)
    config = base.config
    parts = {
        "run": RunOptions(method=base.method, label=base.label),
        "problem": config.problem,
        "settings": config.settings,
        "execution": config.execution,
        **method_parts(base.algorithm),
        "output": OutputOptions(),
    }
    about = f"Train one method. The options below are those of {base.algorithm.title}; --method selects another."
    flags = parse("fedmim run", about, argv, parts, prefixed=WRAPPERS, without=WITHOUT)
    options, output = flags.values["run"], Output.of(flags.values["output"])
    check_checkpoint_seconds(options["checkpoint_seconds"])
    settings = {**flags.values["problem"], **flags.values["settings"], **flags.values["execution"]}
    values = full_paths(settings) | method_values(flags)
    asked = Run.make(options["method"], values, options["label"], where="fedmim run")
    engine = asked.config.execution.engine
    if "ray" in flags.given and engine != "ray":
        raise UserError(f"ray: has no effect on one run with engine {engine}; add --engine ray or remove --ray")
    if selected.resume:
        folder = RunFolder.reopen(Path(options["out"]), asked)
    else:
        check_runs([asked], output)
        name = f"{asked.config.problem.kind}-{asked.algorithm.title.lower()}"
        folder = RunFolder.create(Path(options["out"]) if options["out"] else free_folder(name), asked)
    with resumable(how_to_resume("run", folder.path)):
        train_folders([folder], options["checkpoint_seconds"], output)
        results = load_results([folder])
        show_results(by_label(results, None), None, folder.path, output)
    output.say(f"\n{folder.path}/: config.toml, metrics.jsonl, model.safetensors")
    tell_diverged(results)


def configured_run(selected: Selection) -> Run:
    """The run without the flags: the defaults of the data set, overridden by the configuration file."""
    file = ConfigFile.read(selected.config)
    method = selected.method or file.method(RunOptions.method)
    return Run.make(method, file.values(method, selected.data), file.label(), where=file.path)


def saved_run(selected: Selection) -> Run:
    """The saved run to resume."""
    check_resume(selected, "run")
    saved = RunFolder.open(Path(selected.out or "")).run.with_code()
    if selected.method not in (None, saved.method):
        raise UserError(f"{selected.out}: method cannot change when a run is resumed; the run uses {saved.method}")
    return saved


def how_to_resume(command: str, folder: Path, what: str = "resumes it") -> str:
    """The message after an interruption."""
    return f"`fedmim {command} --resume --out {shlex.quote(str(folder))}` {what}"


def check_resume(selected: Selection, what: str) -> None:
    """--resume requires --out and excludes --config, because the settings are in the folder."""
    if selected.out is None:
        raise UserError(f"resume: give the folder of the {what} with --out")
    if selected.config is not None:
        raise UserError(f"config: a resumed {what} uses the settings in its folder; remove --config")
