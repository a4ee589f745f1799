"""The scale of the experiments: model, rounds, clients and seeds, from presets/NAME.toml."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmim.errors import UserError, unknown
from fedmim.experiments.toml_values import make, read_toml
from fedmim.reproduction.experiment import EXPERIMENTS, PRESETS, PaperExperiment

SCALES = ("cpu", "mnist1d", "paper")


@dataclass(frozen=True)
class Tuning:
    """How the tuned settings of each method are searched."""

    trials: int = 12
    rate_trials: int = 6
    """Number of trials if only the learning rate is searched."""
    validation: float = 0.1
    seed: int = 1000
    each_column: bool = False
    """Whether each column has its own search; else all columns share one."""
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScaledExperiment:
    """What a scale changes in one experiment."""

    settings: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of single columns."""
    data: tuple[str, ...] = ()
    """The data sets; empty: those of the experiment."""
    only: tuple[str, ...] = ()
    """The columns by their headings; empty: all."""
    lines: tuple[str, ...] = ()
    """The lines of a figure with several rows each; empty: all."""
    trials: int | None = None
    """The number of trials of every search, whatever it searches; None: as in `tune`."""


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
    experiments: dict[str, ScaledExperiment] = field(default_factory=dict)
    tune: Tuning = Tuning()

    @classmethod
    def read(cls, name: str) -> Scale:
        """Read a built-in scale, or a TOML file in the same format."""
        if name not in SCALES and not name.endswith(".toml"):
            raise unknown("scale", name, [*SCALES, "FILE.toml"])
        path = PRESETS / f"{name}.toml" if name in SCALES else Path(name)
        values = read_toml(path)
        experiments = {
            each: make(ScaledExperiment, values.pop(each), f"{path}: {each}") for each in EXPERIMENTS if each in values
        }
        tune = make(Tuning, values.pop("tune", {}), f"{path}: tune")
        return make(cls, {"name": path.stem, "experiments": experiments, "tune": tune, **values}, str(path))

    def of(self, experiment: str) -> ScaledExperiment:
        """What the scale changes in an experiment."""
        return self.experiments.get(experiment, ScaledExperiment())

    def fitted(self, experiment: PaperExperiment) -> PaperExperiment:
        """The part of an experiment that this scale has."""
        own = self.of(experiment.name)
        if self.name in SCALES and self.name not in experiment.fits:
            raise UserError(
                f"scale: {experiment.name} is not made for {self.name}; give --scale {' or '.join(experiment.fits)}"
            )
        columns = tuple(each for each in experiment.columns if not own.only or each.label in own.only)
        rows = tuple(each for each in experiment.rows if not own.lines or each.line in own.lines)
        return replace(experiment, data=own.data or experiment.data, columns=columns, rows=rows)
