"""The scale of the experiments: model, rounds, clients and seeds, from presets/paper.toml or presets/cpu.toml."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmim.errors import unknown
from fedmim.experiments.toml_values import make, read_toml
from fedmim.reproduction.experiment import ABLATIONS, OF_THE_PAPER, PRESETS

SCALES = ("cpu", "paper")


@dataclass(frozen=True)
class Tuning:
    """How the tuned settings of each method are searched."""

    trials: int = 12
    rate_trials: int = 6
    """Number of trials if only the learning rate is searched."""
    validation: float = 0.1
    seed: int = 1000
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """The size of the experiments."""

    name: str
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    shrunk: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    targets: dict[str, list[float]] = field(default_factory=dict)
    """Target accuracies for rounds and bytes, by data set."""
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of single experiments; `columns` has settings of single columns."""
    tune: Tuning = Tuning()

    @classmethod
    def read(cls, name: str) -> Scale:
        """Read a built-in scale, or a TOML file in the same format."""
        if name not in SCALES and not name.endswith(".toml"):
            raise unknown("scale", name, [*SCALES, "FILE.toml"])
        path = PRESETS / f"{name}.toml" if name in SCALES else Path(name)
        values = read_toml(path)
        experiments = {each: values.pop(each) for each in OF_THE_PAPER + ABLATIONS if each in values}
        tune = make(Tuning, values.pop("tune", {}), f"{path}: tune")
        return make(cls, {"name": path.stem, "experiments": experiments, "tune": tune, **values}, str(path))
