"""Results: what the records of the runs amount to, one figure a run and its mean over seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.toml_values import plain
from fedmim.files import write_text

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Summary:
    """The figures of one run."""

    final_accuracy: float | None  # of the last evaluation
    last_ten_accuracy: float | None  # mean of the last ten evaluations: the last alone jumps about
    best_accuracy: float | None
    rounds_to_target: int | None
    bytes_to_target: int | None
    consistency: float | None  # mean of the last ten rounds
    bytes_up: int
    bytes_down: int
    refused: int
    seconds: float


def summarise(records: Records, target: float | None) -> Summary:
    """The figures of one run from its records."""
    accuracies = [r["test_accuracy"] for r in records if r["test_accuracy"] is not None]
    consistencies = [r["consistency"] for r in records[-10:] if r["consistency"] is not None]
    reached = None
    if target is not None:
        reached = next((r["round"] for r in records if (r["test_accuracy"] or 0) >= target), None)
    return Summary(
        final_accuracy=accuracies[-1] if accuracies else None,
        last_ten_accuracy=statistics.fmean(accuracies[-10:]) if accuracies else None,
        best_accuracy=max(accuracies, default=None),
        rounds_to_target=reached,
        bytes_to_target=None if reached is None else sum(r["bytes_up"] + r["bytes_down"] for r in records[:reached]),
        consistency=statistics.fmean(consistencies) if consistencies else None,
        bytes_up=sum(r["bytes_up"] for r in records),
        bytes_down=sum(r["bytes_down"] for r in records),
        refused=sum(r["refused"] for r in records),
        seconds=sum(r["seconds"] for r in records),
    )


@dataclass(frozen=True, eq=False)
class Method:
    """One line of a comparison: a method under its label, with a run for each seed."""

    run: Run
    folders: tuple[Path, ...]
    seeds: tuple[int, ...]
    records: tuple[Records, ...]
    summaries: tuple[Summary, ...]

    @property
    def label(self) -> str:
        """How it is called."""
        return self.run.label

    def over_seeds(self, figure: str) -> tuple[float, float] | None:
        """Mean and standard deviation (0 for one seed) of a figure; None unless every seed has it."""
        values = [getattr(summary, figure) for summary in self.summaries]
        if any(value is None for value in values):
            return None
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def collect(folders: Sequence[RunFolder], target: float | None) -> list[Method]:
    """Runs that have ended, grouped by label in the order they come."""
    groups: dict[str, list[RunFolder]] = {}
    for folder in folders:
        groups.setdefault(folder.run.label, []).append(folder)
    return [gather([(folder, folder.metrics()) for folder in group], target) for group in groups.values()]


def gather(runs: Sequence[tuple[RunFolder, Records]], target: float | None) -> Method:
    """Runs of one label with their records, as one line of a comparison."""
    return Method(
        run=runs[0][0].run,
        folders=tuple(folder.path for folder, _ in runs),
        seeds=tuple(folder.run.config.settings.seed for folder, _ in runs),
        records=tuple(records for _, records in runs),
        summaries=tuple(summarise(records, target) for _, records in runs),
    )


def write_json(methods: Sequence[Method], target: float | None, path: Path) -> None:
    """All figures as JSON, with the settings that gave them."""
    write_text(path, json.dumps(as_json(methods, target), indent=1) + "\n")


def as_json(methods: Sequence[Method], target: float | None) -> dict[str, Any]:
    """What results.json holds."""
    lines = []
    for method in methods:
        settings = method.run.config.plain()
        settings.pop("seed")
        figures = list(asdict(method.summaries[0]))
        spread = {name: method.over_seeds(name) for name in figures}
        lines.append(
            {
                "label": method.label,
                "method": method.run.method,
                "hyper_parameters": plain(method.run.algorithm),
                "settings": settings,
                "mean": {name: pair and pair[0] for name, pair in spread.items()},
                "std": {name: pair and pair[1] for name, pair in spread.items()},
                "runs": [
                    {"seed": seed, "folder": folder.name, **asdict(summary)}
                    for seed, folder, summary in zip(method.seeds, method.folders, method.summaries, strict=True)
                ],
            }
        )
    return {"target": target, "methods": lines}
