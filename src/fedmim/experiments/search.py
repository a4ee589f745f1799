"""A search for the settings of a method: the initial settings, the search space, and the number of trials."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedmim.errors import UserError, unknown
from fedmim.experiments.methods import split_name
from fedmim.experiments.run import Run, digest
from fedmim.experiments.toml_values import make, plain, read_toml

if TYPE_CHECKING:
    import optuna

SPACES = Path(__file__).parent / "search_spaces.toml"


@dataclass(frozen=True)
class Search:
    """The search for one method."""

    run: Run
    """The initial settings, used for the first trial. `validation` must be set."""
    space: dict[str, Range]
    trials: int

    def __post_init__(self) -> None:
        if not self.space:
            raise UserError(f"tune: no setting is left to search for {self.run.label}")
        if not self.run.config.problem.validation:
            raise UserError("validation: must be above 0, since settings must not be selected on the test data")
        for name in ("until", "patience"):
            if getattr(self.run.config.settings, name) is not None:
                raise UserError(f"{name}: must be none for tune, whose trials all have the same number of rounds")
        if self.trials < 1:
            raise UserError(f"trials: must be at least 1, got {self.trials}")
        for name, each in self.space.items():
            if name not in self.run.plain():
                raise unknown("space: setting", name, self.run.plain())
            for value in (*(each.choices or (each.low, each.high)), *each.first):
                self.with_values({name: value})  # checks the value before anything is written

    @property
    def name(self) -> str:
        """A unique folder name. It does not depend on the number of trials."""
        own = self.run.method.split(":")[-1].lower()
        return f"{self.run.config.problem.kind}-{own}-{digest(self._identity())}"

    def _identity(self) -> str:
        return self.run.identity() + json.dumps({name: vars(each) for name, each in self.space.items()}, sort_keys=True)

    def to_toml(self) -> str:
        """The search space and the initial settings as TOML text."""
        config = self.run.config
        start = plain(config.problem) | plain(config.settings)
        space = {name: {k: v for k, v in vars(each).items() if v} for name, each in self.space.items()}
        head = {"search": self.name, "method": self.run.method}
        return tomli_w.dumps({**head, **start, self.run.method: self.run.hyper_parameters(), "space": space})

    def first_trials(self) -> list[dict[str, Any]]:
        """The trials before the search starts: the initial settings, then each of the `first` values."""
        start, values = {}, self.run.plain()
        for name, each in self.space.items():
            value = values[name]
            if name == "server_lr" and value == "none":
                value = self.run.algorithm.default_server_lr
            value = each.stored(list(value) if isinstance(value, tuple) else value)
            if value is not None:
                start[name] = value
        return [start] + [start | {name: value} for name, each in self.space.items() for value in each.first]

    def with_values(self, values: dict[str, Any]) -> Run:
        """The run with these values."""
        return self.run.with_values(values, where="tune")


@dataclass(frozen=True)
class Range:
    """The search range of one setting: from low to high, or a list of choices."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    first: tuple[float, ...] = ()
    """Values to try before the search starts, with all other settings at their initial values."""

    def __post_init__(self) -> None:
        if not self.choices and not -math.inf < self.low <= self.high < math.inf:
            raise UserError(f"must have choices, or finite low <= high, got {self.low} and {self.high}")
        if not self.choices and self.log and self.low <= 0:
            raise UserError(f"low must be above 0 with log, got {self.low}")

    def suggest(self, trial: optuna.trial.Trial, name: str) -> Any:
        """The value for a trial."""
        if self.choices:
            return self.value(trial.suggest_categorical(name, list(map(json.dumps, self.choices))))
        return self.value(trial.suggest_float(name, self.low, self.high, log=self.log))

    def value(self, stored: Any) -> Any:
        """Convert a value from Optuna: numbers are rounded to three digits, choices are parsed."""
        return json.loads(stored) if self.choices else float(f"{stored:.3g}")

    def stored(self, value: Any) -> Any:
        """Convert a value for Optuna; None if it is outside the range."""
        if self.choices:
            text = json.dumps(value)
            return text if text in map(json.dumps, self.choices) else None
        return value if self.low <= value <= self.high else None


def space_of(method: str, without: set[str], path: Path | None = None) -> dict[str, Range]:
    """The search space of a method: the learning rate and its hyper-parameters, except those in `without`."""
    path = path or SPACES
    tables, (base, around) = read_toml(path), split_name(method)
    own = {name: tables.get(name, {}) for name in ("all", base, *around)}
    if not all(isinstance(each, dict) and all(isinstance(v, dict) for v in each.values()) for each in own.values()):
        raise UserError(f"{path}: each setting must be a table, as in [all.lr]")
    values = own["all"] | own[base]
    for name in around:
        values |= {f"{name}.{each}": value for each, value in own[name].items()}
    return {name: make(Range, value, f"{path}: {name}") for name, value in values.items() if name not in without}
