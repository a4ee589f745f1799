"""Comparisons: several methods on the same data, split, seeds and sampled clients. Each run has its own folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedmim.errors import UserError
from fedmim.experiments.methods import flattened
from fedmim.experiments.run import Run, file_name
from fedmim.experiments.run_folder import CONFIG, RunFolder
from fedmim.experiments.toml_values import read_toml
from fedmim.files import LOCK, make_folder, write_text

COMPARISON = "comparison.toml"


@dataclass(frozen=True)
class Comparison:
    """The methods to compare, with their labels and settings, and the seeds to run each of them with."""

    runs: tuple[Run, ...]
    seeds: tuple[int, ...] = (0,)
    target: float | None = None  # the target accuracy of rounds_to_target

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("methods: give at least one method")
        whole = all(type(seed) is int and seed >= 0 for seed in self.seeds)
        if not self.seeds or not whole or len(set(self.seeds)) < len(self.seeds):
            raise UserError(
                "seeds: must be distinct whole numbers of at least 0, got " + (",".join(map(str, self.seeds)) or "none")
            )
        if self.target is not None and not 0 < self.target <= 1:
            raise UserError(f"target: must be above 0 and at most 1, got {self.target}")

    def jobs(self) -> Iterator[tuple[str, Run]]:
        """All runs with their folder names, seed by seed: a seed is complete before the next one starts."""
        names = iter(self.folder_names())
        for seed in self.seeds:
            for run in self.runs:
                yield next(names), run.replace(seed=seed)

    def folder_names(self) -> list[str]:
        """The folder names of all runs, in order."""
        names = folder_names([run.label for run in self.runs])
        return [f"{name}-seed{seed}" for seed in self.seeds for name in names]

    def to_toml(self) -> str:
        """TOML text, valid for `--config`."""
        variants = [{"method": run.method, "label": run.label, **run.plain()} for run in self.runs]
        head: dict[str, Any] = {"seeds": list(self.seeds)}
        if self.target is not None:
            head["target"] = self.target
        return tomli_w.dumps({**head, "variants": variants})

    @classmethod
    def open(cls, folder: Path) -> Comparison:
        """Read the comparison in a folder."""
        path = folder / COMPARISON
        if not path.is_file():
            raise UserError(f"{folder}: not a comparison folder ({COMPARISON} is missing)")
        values = read_toml(path)
        try:
            variants = [flattened(variant) for variant in values["variants"]]
            runs = [Run.recorded(v.pop("method"), v, v.pop("label"), str(path)) for v in variants]
            return cls(tuple(runs), tuple(values["seeds"]), values.get("target"))
        except UserError as error:
            raise error if str(error).startswith(str(path)) else UserError(f"{path}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: not a comparison ({error} is missing or wrong)") from error


def folder_names(labels: list[str]) -> list[str]:
    """A unique folder name for each label."""
    names: dict[str, None] = {}
    for label in labels:
        name = base = file_name(label)[:220] or "run"  # file names are limited to 255 characters
        number = 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names[name] = None
    return list(names)


def existing_folders(comparison: Comparison, folder: Path, resume: bool) -> dict[str, RunFolder]:
    """The existing runs of a comparison to resume, by folder name. Nothing is written.

    A new comparison needs a folder that does not exist yet or is empty.
    """
    if resume and not (folder / COMPARISON).is_file():
        raise UserError(f"{folder}: no comparison to resume ({COMPARISON} is missing)")
    leftovers = (LOCK, f".{COMPARISON}.part")  # left over if a process was killed
    usable = not folder.exists() or (folder.is_dir() and all(each.name in leftovers for each in folder.iterdir()))
    if not (resume or usable):
        holds = (
            "already contains a comparison; add --resume to continue it, or" if (folder / COMPARISON).exists() else ""
        )
        raise UserError(f"{folder}: {holds or 'is not empty;'} give another --out")
    jobs = comparison.jobs()
    return {name: RunFolder.reopen(folder / name, run) for name, run in jobs if (folder / name / CONFIG).exists()}


def run_folders(comparison: Comparison, folder: Path, resume: bool = False) -> list[RunFolder]:
    """The folders of all runs. Missing ones are created, after all checks have passed."""
    there = existing_folders(comparison, folder, resume)
    make_folder(folder)
    write_text(folder / COMPARISON, comparison.to_toml())
    return [there.get(name) or RunFolder.create(folder / name, run) for name, run in comparison.jobs()]
