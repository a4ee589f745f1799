"""Comparisons: several methods on the same data, split, seeds and client samples, each run in a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedmim.errors import UserError
from fedmim.experiments.config import Config, plain, read_toml
from fedmim.experiments.methods import Run
from fedmim.experiments.runs import CONFIG, RunFolder, differences
from fedmim.files import write_text

if TYPE_CHECKING:
    from fedmim.simulation.task import Task

FILE = "comparison.toml"


@dataclass(frozen=True)
class Comparison:
    """What is compared: methods with their labels and settings, at each of the seeds."""

    runs: tuple[Run, ...]
    seeds: tuple[int, ...] = (0,)
    target: float | None = None  # the accuracy that `rounds to target` asks for

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("methods: there are none")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"seeds: must be different whole numbers, got {','.join(map(str, self.seeds))}")
        if self.target is not None and not 0 < self.target <= 1:
            raise UserError(f"target: must be above 0 and at most 1, got {self.target}")

    def jobs(self) -> Iterator[tuple[str, Run]]:
        """All runs with the names of their folders; one seed after the other, so that early results are whole."""
        names = folder_names([run.label for run in self.runs])
        for seed in self.seeds:
            for name, run in zip(names, self.runs, strict=True):
                yield f"{name}-seed{seed}", run.with_seed(seed)

    def to_toml(self) -> str:
        """As text that `--config` takes."""
        variants = [
            {"method": run.method, "label": run.label, **plain(run.config), **plain(run.algorithm)} for run in self.runs
        ]
        head: dict[str, Any] = {"seeds": list(self.seeds)}
        if self.target is not None:
            head["target"] = self.target
        return tomli_w.dumps({**head, "variants": variants})

    @classmethod
    def open(cls, folder: Path) -> Comparison:
        """The comparison that a folder holds."""
        path = folder / FILE
        if not path.is_file():
            raise UserError(f"{folder}: there is no comparison here ({FILE} is missing)")
        values = read_toml(path)
        try:
            variants = [dict(variant) for variant in values["variants"]]
            runs = [Run.make(v.pop("method"), v, v.pop("label"), str(path)) for v in variants]
            return cls(tuple(runs), tuple(values["seeds"]), values.get("target"))
        except (KeyError, TypeError) as error:
            raise UserError(f"{path}: not a comparison ({error} is missing or wrong)") from error


def folder_names(labels: list[str]) -> list[str]:
    """A folder name for each label, all different."""
    names: list[str] = []
    for label in labels:
        name = base = re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "run"
        number = 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names.append(name)
    return names


def prepare(comparison: Comparison, folder: Path, resume: bool) -> list[RunFolder]:
    """The run folders of a comparison: made anew, or with resume those that are there and those that lack."""
    if resume:
        if not (folder / FILE).is_file():
            raise UserError(f"{folder}: there is no comparison to resume ({FILE} is missing)")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        holds = "holds a comparison already; add --resume to go on with it, or" if (folder / FILE).exists() else ""
        raise UserError(f"{folder}: {holds or 'is not empty;'} give another --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / FILE, comparison.to_toml())
    folders = []
    for name, run in comparison.jobs():
        if (folder / name / CONFIG).exists():
            existing = RunFolder.open(folder / name)
            if changed := differences(run, existing.run):
                raise UserError(f"{folder / name}: holds a run with another {', '.join(changed)}; give another --out")
            if existing.run.config.rounds != run.config.rounds:
                existing.extend(run.config.rounds)
            folders.append(existing)
        else:
            folders.append(RunFolder.create(folder / name, run))
    return folders


def task_of(config: Config) -> Task:
    """The task that a configuration describes."""
    from fedmim.simulation.task import Task

    return Task.named(
        config.data,
        split=config.split,
        clients=config.clients,
        model=config.model,
        seed=config.seed,
        data_dir=config.data_dir,
        augment=config.augment,
        colour=config.colour,
        image_size=config.image_size,
        validation=config.validation,
    )


class TaskCache:
    """The last task made: the methods of a comparison share one for each seed."""

    def __init__(self, make: Callable[[Config], Task] = task_of) -> None:
        self._make = make
        self._key: tuple[Any, ...] | None = None
        self._task: Task | None = None

    def __call__(self, config: Config) -> Task:
        """The task of a configuration."""
        names = "data split clients model seed data_dir augment colour image_size validation"
        key = tuple(getattr(config, name) for name in names.split())
        if key != self._key or self._task is None:
            self._key, self._task = key, self._make(config)
        return self._task
