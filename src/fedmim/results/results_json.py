"""results.json: all metrics of a comparison, and the settings of its runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmim.files import write_text
from fedmim.results.method_results import MethodResults
from fedmim.results.metrics import METRICS


def write_json(methods: Sequence[MethodResults], target: float | None, path: Path) -> None:
    """Write results.json."""
    write_text(path, json.dumps(as_json(methods, target), indent=1) + "\n")


def as_json(methods: Sequence[MethodResults], target: float | None) -> dict[str, Any]:
    """The content of results.json."""
    return {"target": target, "methods": [_line(method) for method in methods]}


def _line(method: MethodResults) -> dict[str, Any]:
    settings = method.run.config.flat()
    settings.pop("seed")
    spreads = {name: method.over_seeds(name) for name in METRICS}
    return {
        "label": method.label,
        "method": method.run.method,
        "hyper_parameters": method.run.hyper_parameter_values(),
        "settings": settings,
        "mean": {name: pair and pair[0] for name, pair in spreads.items()},
        "std": {name: pair and pair[1] for name, pair in spreads.items()},
        "runs": [
            {"seed": run.seed, "folder": run.path.name, "stopped": run.stopped, **summary}
            for run, summary in zip(method.runs, method.summaries, strict=True)
        ],
    }
