"""The scale of the experiments: model, rounds, clients and seeds. presets/paper.toml and presets/cpu.toml hold them."""

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
    """How each method's own best settings are found."""

    trials: int = 12
    rate_trials: int = 6
    """Trials where only the learning rate is searched."""
    validation: float = 0.1
    seed: int = 1000
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """At which size the experiments are run."""

    name: str
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    shrunk: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    targets: dict[str, list[float]] = field(default_factory=dict)
    """Accuracies for the rounds and bytes to reach them, by data set."""
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings for one experiment, and under `columns` for one of its columns."""
    tune: Tuning = Tuning()

    @classmethod
    def read(cls, name: str) -> Scale:
        """A scale of the package, or a TOML file of the same form."""
        if name not in SCALES and not name.endswith(".toml"):
            raise unknown("scale", name, [*SCALES, "FILE.toml"])
        path = PRESETS / f"{name}.toml" if name in SCALES else Path(name)
        values = read_toml(path)
        experiments = {each: values.pop(each) for each in OF_THE_PAPER + ABLATIONS if each in values}
        tune = make(Tuning, values.pop("tune", {}), f"{path}: tune")
        return make(cls, {"name": path.stem, "experiments": experiments, "tune": tune, **values}, str(path))
