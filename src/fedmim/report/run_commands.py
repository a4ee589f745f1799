"""The exact commands that repeat the runs of a group."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from fedmim.algorithms import PAPER
from fedmim.errors import UserError
from fedmim.experiments.config import defaults, target_of
from fedmim.experiments.methods import find_method, label_all
from fedmim.experiments.run import Run
from fedmim.experiments.toml_values import plain
from fedmim.results.grouping import RunGroup

LEFT_OUT = ("seed", "data_dir")  # the seed has its own flag, the folder is the reader's


def commands_for(group: RunGroup) -> list[str]:
    """One `fedmim compare` for all methods with the same seeds; `fedmim run` where the labels do not allow it."""
    seeds: dict[str, list[int]] = {}
    runs: dict[str, Run] = {}
    for each in group.runs:
        runs.setdefault(each.run.label, each.run)
        seeds.setdefault(each.run.label, []).append(each.seed)
    together: dict[tuple[int, ...], list[Run]] = {}
    for label, run in runs.items():
        together.setdefault(tuple(sorted(seeds[label])), []).append(run)
    lines = []
    for numbers, same in together.items():
        command = _compare(same, numbers, group.target) if len(same) * len(numbers) > 1 else None
        lines += [command] if command else [_run(run.replace(seed=seed)) for seed in numbers for run in same]
    return lines


def _run(run: Run) -> str:
    config = run.config
    usual = defaults(config.problem.data)
    words = ["fedmim", "run", "--method", run.method]
    words += [] if config.problem.data == "digits" else ["--data", config.problem.data]
    if run.label != run.algorithm.title:
        words += ["--label", run.label]
    settings = {name: value for name, value in _settings(run).items() if value != _plain(usual[name])}
    words += _flags({name: value for name, value in settings.items() if name != "data"})
    words += _flags(_own(run))
    return shlex.join([*words, *(["--seed", str(config.settings.seed)] if config.settings.seed else [])])


def _compare(runs: Sequence[Run], seeds: tuple[int, ...], target: float | None) -> str | None:
    """None if the labels cannot be written in --methods so that all differ."""
    data = runs[0].config.problem.data
    usual = {name: _plain(value) for name, value in defaults(data).items()}
    settings = [_settings(run) for run in runs]
    common = {name: value for name, value in settings[0].items() if all(each[name] == value for each in settings)}
    base = usual | common
    entries = [
        (run.method, _named(run, {name: value for name, value in each.items() if value != base[name]} | _own(run)))
        for run, each in zip(runs, settings, strict=True)
    ]
    try:
        label_all(entries)
    except UserError:
        return None
    written = [_entry(method, own) for method, own in entries]
    words = ["fedmim", "compare"]
    words += ["--methods", ",".join(written)] if written != list(PAPER) else []
    words += [] if data == "digits" else ["--data", data]
    words += _flags({name: value for name, value in common.items() if name != "data" and value != usual[name]})
    words += ["--seeds", ",".join(map(str, seeds))] if seeds != (0,) else []
    words += ["--target", f"{target:g}"] if target is not None and target != target_of(data) else []
    return shlex.join(words)


def _named(run: Run, own: dict[str, Any]) -> dict[str, Any]:
    """A method's own settings, with its label where that is not the usual one; --methods takes none with brackets."""
    own = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
    unusual = label_all([(run.method, own)]) != [run.label] and not set("()\"'\\\n") & set(run.label)
    return own | {"label": run.label} if unusual else own


def _entry(method: str, own: dict[str, Any]) -> str:
    """A method as --methods takes it: JSON's numbers, texts and lists are TOML's too."""
    items = [f"{name}={json.dumps(value, separators=(',', ':'), ensure_ascii=False)}" for name, value in own.items()]
    return f"{method}({','.join(items)})" if items else method


def _settings(run: Run) -> dict[str, Any]:
    return {name: value for name, value in run.config.plain().items() if name not in LEFT_OUT}


def _own(run: Run) -> dict[str, Any]:
    """The hyper-parameters that are not the method's usual ones."""
    usual = plain(find_method(run.method)())
    return {name: value for name, value in plain(run.algorithm).items() if value != usual[name]}


def _flags(values: dict[str, Any]) -> list[str]:
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            words += [f"--{flag}={text}"] if text.startswith("-") else [f"--{flag}", text]
    return words


def _plain(value: Any) -> Any:
    return "none" if value is None else value
