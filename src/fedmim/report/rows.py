"""The page's table of all runs, with the settings in which they differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.toml_values import plain
from fedmim.report.results import Records, Summary, summarise
from fedmim.report.sets import APART, Problem, short


@dataclass(frozen=True)
class Row:
    """One run in the table."""

    label: str
    seed: int
    folder: str
    rounds: str
    missed: str  # what to say of a target that was not reached
    settings: dict[str, tuple[str, bool]]  # those that differ: the value, and whether it is unlike most
    summary: Summary


def table(problem: Problem) -> tuple[list[Row], dict[str, str]]:
    """A row for each run, and the settings that all share."""
    runs = _runs(problem)
    values = [_settings(folder) for folder, _ in runs]
    names = dict.fromkeys(name for each in values for name in each)
    usual = {name: Counter(each[name] for each in values if name in each).most_common(1)[0][0] for name in names}
    differ = [name for name in names if any(each.get(name, usual[name]) != usual[name] for each in values)]
    rows = []
    for (folder, records), each in zip(runs, values, strict=True):
        done, rounds = len(records), folder.run.config.settings.rounds
        rows.append(
            Row(
                label=folder.run.label,
                seed=folder.run.config.settings.seed,
                folder=folder.path.name,
                rounds=f"{done}" if done >= rounds else f"{done} of {rounds}",
                missed="never" if done >= rounds else "not yet",
                settings={name: (each.get(name, ""), each.get(name, usual[name]) != usual[name]) for name in differ},
                summary=summarise(records, problem.target),
            )
        )
    return rows, {name: value for name, value in usual.items() if name not in differ}


def _runs(problem: Problem) -> list[tuple[RunFolder, Records]]:
    """All runs with their records, by label and seed."""
    runs: list[tuple[RunFolder, Records]] = [(folder, []) for folder in problem.waiting]
    for method in problem.lines + problem.behind:
        for path, seed, records in zip(method.folders, method.seeds, method.records, strict=True):
            runs.append((RunFolder(path, method.run.replace(seed=seed)), records))
    place = {label: number for number, label in enumerate(problem.styles)}
    return sorted(runs, key=lambda pair: (place[pair[0].run.label], pair[0].run.config.settings.seed))


def _settings(folder: RunFolder) -> dict[str, str]:
    """All that a run was asked to do, hyper-parameters as in the flags of `fedmim compare`: fedmim.alpha."""
    run = folder.run
    config = {name: value for name, value in run.config.plain().items() if name not in APART}
    own = {f"{run.method.rpartition(':')[2]}.{name}": value for name, value in plain(run.algorithm).items()}
    return {name: short(value) for name, value in (config | own).items()}
