"""The commands that reproduce the runs of a group."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from fedmim.algorithms import PAPER
from fedmim.errors import UserError
from fedmim.experiments.config import Config, defaults, target_of
from fedmim.experiments.config_file import DEMO, ConfigFile, new_comparison
from fedmim.experiments.methods import hyper_parameters, is_built_in, label_all, make_method, split_name
from fedmim.experiments.run import Run
from fedmim.experiments.sources import IN_MEMORY
from fedmim.results.grouping import RunGroup
from fedmim.results.method_results import by_label

LEFT_OUT = ("seed", "data_dir")  # the seed has its own flag; data_dir differs between machines


def commands_for(group: RunGroup) -> list[str]:
    """One `fedmim compare` for all methods with the same seeds, or `fedmim run` if the labels are not unique."""
    if (data := group.config.problem.data).startswith(IN_MEMORY):
        return [f"# {data} was given in Python: fedmim.compare"]
    together: dict[tuple[int, ...], list[Run]] = {}
    for line in by_label(group.runs, None):
        together.setdefault(tuple(sorted(line.seeds)), []).append(line.run)
    lines = []
    for numbers, same in together.items():
        several = len(same) * len(numbers) > 1 or not is_built_in(
            same[0].method
        )  # the flags of a user's own method are unknown
        command = _compare(same, numbers, group.target) if several else None
        lines += [command] if command else [_run(run.replace(seed=seed)) for seed in numbers for run in same]
    return lines


def _run(run: Run) -> str:
    data, seed = run.config.problem.data, run.config.settings.seed
    words = ["fedmim", "run", "--method", run.method]
    words += ["--data", data]
    words += [] if run.label == run.algorithm.title else ["--label", run.label]
    words += flags_of(_unusual(_settings(run), _defaults(data)) | _own(run))
    return shlex.join([*words, *(["--seed", str(seed)] if seed else [])])


def _compare(runs: Sequence[Run], seeds: tuple[int, ...], target: float | None) -> str | None:
    """None if --methods cannot express unique labels."""
    data = runs[0].config.problem.data
    usual = _defaults(data)
    settings = [_settings(run) for run in runs]
    common = {name: value for name, value in settings[0].items() if all(each[name] == value for each in settings)}
    base = usual | common
    entries = [
        (run.method, _named(run, _unusual(each, base) | _own(run))) for run, each in zip(runs, settings, strict=True)
    ]
    try:
        label_all(entries, {run.method: run.algorithm.title for run in runs})
    except UserError:
        return None
    written = [_entry(method, own) for method, own in entries]
    words = ["fedmim", "compare"]
    if not _is_demo(runs):
        words += ["--methods", ",".join(written)] if written != list(PAPER) else []
        words += ["--data", data]
        words += flags_of(_unusual(common, usual))
    words += ["--seeds", ",".join(map(str, seeds))] if seeds != (0,) else []
    words += ["--target", f"{target:g}"] if target is not None and target != target_of(data) else []
    return shlex.join(words)


def _is_demo(runs: Sequence[Run]) -> bool:
    """Whether these are the runs of `fedmim compare` without options, with any seed."""
    file = ConfigFile.read(str(DEMO))
    demo = new_comparison(file, file.variants(), {}, {}, (0,), None)
    ours, theirs = ({(each.label, each.replace(seed=0).identity()) for each in some} for some in (runs, demo.runs))
    return ours == theirs


def _named(run: Run, own: dict[str, Any]) -> dict[str, Any]:
    """The settings of a method, and its label if it is not the default. --methods allows no brackets in labels."""
    own = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
    unusual = label_all([(run.method, own)], {run.method: run.algorithm.title}) != [run.label] and not set(
        "()\"'\\\n"
    ) & set(run.label)
    return own | {"label": run.label} if unusual else own


def _entry(method: str, own: dict[str, Any]) -> str:
    """An entry of --methods. Numbers, strings and lists in JSON are also valid TOML."""
    base, around = split_name(method)
    written = []
    for layer in ("", *around):
        theirs = {name: value for name, value in own.items() if name.rpartition(".")[0] == layer}
        items = [f"{name.rpartition('.')[2]}={_as_toml(value)}" for name, value in theirs.items()]
        written.append((layer or base) + (f"({','.join(items)})" if items else ""))
    return "+".join(written)


def _as_toml(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _settings(run: Run) -> dict[str, Any]:
    return {name: value for name, value in run.config.plain().items() if name not in LEFT_OUT}


def _own(run: Run) -> dict[str, Any]:
    """The hyper-parameters that differ from the defaults; all of them for a user's own method."""
    if not is_built_in(run.method):
        return run.hyper_parameters()
    return _unusual(run.hyper_parameters(), hyper_parameters(make_method(run.method, {}, run.method)[0]))


def _defaults(data: str) -> dict[str, Any]:
    return Config.of(defaults(data), data).plain()


def _unusual(values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != usual[name]}


def flags_of(values: dict[str, Any]) -> list[str]:
    """The options of a command that give these values to these settings."""
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            words += [f"--{flag}={text}"] if text.startswith("-") else [f"--{flag}", text]
    return words
