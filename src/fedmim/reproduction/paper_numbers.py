"""The numbers that the paper reports, from presets/numbers.toml."""

from __future__ import annotations

from dataclasses import dataclass

from fedmim.experiments.toml_values import read_toml
from fedmim.reproduction.experiment import PRESETS, PaperExperiment


@dataclass(frozen=True)
class PaperNumbers:
    """What the paper reports for an experiment."""

    columns: list[str]
    rows: dict[str, dict[str, list[float]]]  # data -> row -> a number a column

    @classmethod
    def read(cls, experiment: PaperExperiment) -> PaperNumbers:
        """Those of presets/numbers.toml, if it has any."""
        values = read_toml(PRESETS / "numbers.toml").get(experiment.name, {"columns": []})
        return cls(values.pop("columns"), values)

    def at(self, data: str, row: str, column: str) -> float | None:
        """The paper's number in one place; None where it has none."""
        found = self.rows.get(data, {}).get(row)
        return found[self.columns.index(column)] if found and column in self.columns else None
