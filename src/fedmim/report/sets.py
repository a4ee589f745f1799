"""Sets of runs: whatever run folders are found, sorted into problems and, in each, into the lines of a comparison."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from fedmim.algorithms import METHODS
from fedmim.errors import UserError
from fedmim.experiments.archive import ArchivedRun, archived_below
from fedmim.experiments.compare import FILE as COMPARISON
from fedmim.experiments.compare import Comparison
from fedmim.experiments.config import Config, plain, target_of
from fedmim.experiments.methods import Run
from fedmim.experiments.runs import CONFIG, RunFolder
from fedmim.report.results import Method, Records, gather
from fedmim.report.style import Style, styles

APART = ("seed", "data_dir", "engine", "workers", "device")  # what leaves a result comparable
# What makes a variant of a method where runs of one label differ in it; other settings make another problem.
METHOD = ("rounds", "eval_every", "lr", "lr_decay", "weight_decay", "clip_norm", "server_lr")
PROBLEM = sorted(
    (field.name for field in fields(Config) if field.name not in APART + METHOD),
    key=lambda name: name not in ("data", "split"),  # these first
)

Metrics = Callable[[RunFolder], Records]


@dataclass(frozen=True)
class Problem:
    """Runs that can be compared with each other."""

    facets: tuple[str, ...]  # the settings that tell it from the other problems on the same data
    target: float | None  # the accuracy that `rounds to target` asks for
    lines: tuple[Method, ...]  # each the runs of one label that have come furthest
    behind: tuple[Method, ...]  # runs that have not come as far as others of their label
    waiting: tuple[RunFolder, ...]  # runs without a round so far

    @property
    def config(self) -> Config:
        """The settings of its first run."""
        return next(iter(self._runs())).config

    @property
    def styles(self) -> dict[str, Style]:
        """How each label is drawn."""
        methods = {run.label: run.method for run in self._runs()}
        return dict(zip(methods, styles(methods.values()), strict=True))

    @property
    def count(self) -> tuple[int, int]:
        """How many of its runs have ended, and how many there are."""
        started = [(method.run, records) for method in self.lines + self.behind for records in method.records]
        ended = sum(len(records) >= run.config.rounds for run, records in started)
        return ended, len(started) + len(self.waiting)

    def _runs(self) -> Iterable[Run]:
        yield from (method.run for method in self.lines + self.behind)
        yield from (folder.run for folder in self.waiting)


def find(paths: Sequence[Path], warn: Callable[[str], None]) -> list[RunFolder]:
    """The runs in these folders or anywhere below them, each once; a run that cannot be read is named and left out."""
    folders: dict[Path, RunFolder] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder")
        found = []
        below = [(RunFolder, folder) for folder in folders_below(path)]
        below += [(ArchivedRun, file) for file in archived_below(path)]
        for kind, place in below:
            try:
                found.append(kind.open(place))
            except UserError as error:
                warn(f"left out: {error}")
        folders |= {folder.path.resolve(): folder for folder in sorted(found, key=_order())}
    if not folders:
        raise UserError(f"{', '.join(map(str, paths))}: there are no runs here ({CONFIG} is in none of the folders)")
    return list(folders.values())


def folders_below(path: Path) -> list[Path]:
    """The folders of runs at or below a path, without looking into them."""
    found = []
    for folder, inner, files in os.walk(path):
        if CONFIG in files:
            found.append(Path(folder))
            inner.clear()
    return sorted(found)


def _order() -> Callable[[RunFolder], Any]:
    """A comparison's runs come in its own order, others by method, label and seed; folders by name."""
    listed: dict[Path, list[str]] = {}

    def key(folder: RunFolder) -> Any:
        parent = folder.path.parent
        if parent not in listed:
            try:
                listed[parent] = [name for name, _ in Comparison.open(parent).jobs()]
            except UserError:  # no comparison, or one of another version: only the order is lost
                listed[parent] = []
        names, run = listed[parent], folder.run
        place = names.index(folder.path.name) if folder.path.name in names else len(names)
        known = list(METHODS)
        method = known.index(run.method) if run.method in known else len(known)
        return natural(str(parent)), place, method, natural(run.label), run.config.seed

    return key


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts run-2 before run-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def problems(
    folders: Sequence[RunFolder], target: float | None = None, metrics: Metrics = lambda folder: folder.metrics()
) -> list[Problem]:
    """The runs sorted into problems; `target` overrides what the comparisons and data sets have."""
    facets = _facets(folders)
    groups: dict[tuple[Any, ...], list[RunFolder]] = {}
    for folder in folders:
        groups.setdefault(tuple(getattr(folder.run.config, name) for name in facets), []).append(folder)
    # What goes with the data set, such as its usual model, need not be told.
    told = tuple(
        name
        for at, name in enumerate(facets)
        if any(one[0] == other[0] and one[at] != other[at] for one, other in combinations(groups, 2))
    )
    return [_problem(group, told, target, metrics) for group in groups.values()]


def _facets(folders: Sequence[RunFolder]) -> tuple[str, ...]:
    """The settings of the problem in which the set varies: the data, and those in which runs of one label differ."""
    values: dict[tuple[str, str], set[Any]] = {}
    for folder in folders:
        for name in PROBLEM:
            label = "" if name == "data" else folder.run.label
            values.setdefault((name, label), set()).add(getattr(folder.run.config, name))
    differ = {name for (name, _), each in values.items() if len(each) > 1}
    return tuple(name for name in PROBLEM if name == "data" or name in differ)


def _problem(folders: Sequence[RunFolder], facets: tuple[str, ...], target: float | None, metrics: Metrics) -> Problem:
    if target is None:
        target = _target(folders)
    lines, behind, waiting = [], [], []
    for group in _labelled(folders):
        records = [(folder, metrics(folder)) for folder in group]
        furthest = max(len(each) for _, each in records)
        waiting += [folder for folder, each in records if not each]
        if furthest:
            lines.append(gather([pair for pair in records if len(pair[1]) == furthest], target))
        behind += [gather([pair], target) for pair in records if 0 < len(pair[1]) < furthest]
    return Problem(facets, target, tuple(lines), tuple(behind), tuple(waiting))


def _target(folders: Sequence[RunFolder]) -> float | None:
    for parent in dict.fromkeys(folder.path.parent for folder in folders):
        if (parent / COMPARISON).is_file():
            try:
                return Comparison.open(parent).target
            except UserError:
                continue
    return target_of(folders[0].run.config.data)


def _labelled(folders: Sequence[RunFolder]) -> list[list[RunFolder]]:
    """The runs of each line. Where one label stands for different things, what differs joins the label."""
    groups: dict[str, list[RunFolder]] = {}
    for folder in folders:
        groups.setdefault(folder.run.label, []).append(folder)
    lines: dict[str, list[RunFolder]] = {}
    owners: dict[str, str] = {}
    for label, group in groups.items():
        differ = differing(group)
        seeds = [(folder.run.config.seed, *(str(settings(folder).get(name)) for name in differ)) for folder in group]
        for folder, seed in zip(group, seeds, strict=True):
            apart = [f"{name}={short(settings(folder)[name])}" for name in differ if name in settings(folder)]
            if seeds.count(seed) > 1:  # the same run twice
                apart.append(f"{folder.path.parent.name}/{folder.path.name}")
            name = f"{label} ({', '.join(apart)})" if apart else label
            if owners.setdefault(name, label) != label:  # someone's own label reads like this one
                name = f"{name} in {folder.path.parent.name}"
            lines.setdefault(name, []).append(type(folder)(folder.path, replace(folder.run, label=name)))
    return list(lines.values())


def settings(folder: RunFolder) -> dict[str, Any]:
    """All that a run was asked to do: method, hyper-parameters and settings, as plain values."""
    run = folder.run
    names = [field.name for field in fields(run.config) if field.name != "seed"]
    config = plain(run.config)
    return {"method": run.method, **{name: config[name] for name in names}, **plain(run.algorithm)}


def differing(folders: Sequence[RunFolder]) -> list[str]:
    """The settings in which these runs differ, in their usual order; the seed and what does not matter aside."""
    values = [settings(folder) for folder in folders]
    names = dict.fromkeys(name for each in values for name in each if name not in APART)
    return [name for name in names if any(each.get(name) != values[0].get(name) for each in values)]


def short(value: Any) -> str:
    """A value as a reader wants it."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(short, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)
