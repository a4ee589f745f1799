"""The configuration of a run: the problem, the settings and the execution, flat in TOML files and flags.

What decides the bits of a run is its problem and its settings; its execution does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmim.data.catalogue import find_descriptor
from fedmim.data.descriptor import OwnData, data_directory
from fedmim.errors import UserError, unknown
from fedmim.experiments.toml_values import make, plain
from fedmim.simulation.settings import Execution, Settings, at_least

if TYPE_CHECKING:
    from fedmim.simulation.task import Task

LARGEST_IMAGE = 10_000  # pixels a side


@dataclass(frozen=True)
class Problem:
    """What is learned: the data, how it is split over clients, and the model."""

    data: str = "digits"
    """Data set, as `fedmim data` lists them: digits and mnist1d (need no download), cifar10, ..., tiny-imagenet:N (N
    classes), folder:PATH (images in a folder for each class), tensors:FILE.safetensors."""
    split: str = "dirichlet:0.1"
    """How the data is split over clients: iid, dirichlet:U (label priors from Dir(U); smaller is harder),
    pathological:C (at most C classes for each client), natural (the data's own clients)."""
    clients: int = 100
    """N, the number of clients."""
    model: str = "mlp"
    """Network: logistic, mlp, mlp2, cnn, lenet, resnet18."""
    augment: bool = True
    """Random crop and flip of training images, where the data set has them."""
    colour: float = 0.0
    """Strength of each client's own brightness and saturation, 0 for none."""
    image_size: int | None = None
    """Resize the images of folder:PATH to so many pixels a side; none: they must share one size."""
    validation: float = 0.0
    """Hold out this part of the training data and evaluate on it instead of the test data: for choosing settings."""

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)
        if self.image_size is not None and not 1 <= self.image_size <= LARGEST_IMAGE:
            raise UserError(
                f"image_size: must be a number of pixels from 1 to {LARGEST_IMAGE:,}, got {self.image_size}"
            )
        if not 0 <= self.colour <= 1:
            raise UserError(f"colour: must be between 0 and 1, got {self.colour}")
        if not 0 <= self.validation < 1:
            raise UserError(f"validation: must be at least 0 and below 1, got {self.validation}")

    def task(self, seed: int = 0, data_dir: str | None = None) -> Task:
        """The task of this problem at a seed. The last one is kept: the methods of a comparison share it."""
        return _task(self, seed, data_directory(data_dir))


@lru_cache(maxsize=1)
def _task(problem: Problem, seed: int, data_dir: Path) -> Task:
    from fedmim.simulation.task import Task

    return Task.named(**asdict(problem), seed=seed, data_dir=data_dir)


@dataclass(frozen=True)
class Config:
    """A run but for its method: the three parts, whose fields are one flat list in TOML files and flags."""

    problem: Problem = Problem()
    settings: Settings = Settings()  # noqa: RUF009  # frozen, as Problem
    execution: Execution = Execution()  # noqa: RUF009

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str) -> Config:
        """From flat plain values; `where` says in errors whose values they are."""
        for name in values:
            if name not in PART_OF:
                raise unknown(f"{where}: setting", name, PART_OF)
        parts = {
            part: make(kind, {name: value for name, value in values.items() if PART_OF[name] == part}, where)
            for part, kind in PARTS.items()
        }
        return cls(**parts)

    def flat(self) -> dict[str, Any]:
        """All fields of the three parts by name."""
        return {name: getattr(getattr(self, part), name) for name, part in PART_OF.items()}

    def plain(self) -> dict[str, Any]:
        """All fields as values that TOML can hold."""
        return plain(self.problem) | plain(self.settings) | plain(self.execution)

    def replace(self, **changes: Any) -> Config:
        """The same with other values of some fields, by their flat names."""
        return Config.of(self.flat() | changes, "config")

    def task(self) -> Task:
        """The task that this configuration describes."""
        return self.problem.task(self.settings.seed, self.execution.data_dir)


PARTS: dict[str, Any] = {"problem": Problem, "settings": Settings, "execution": Execution}
PART_OF = {field.name: part for part, kind in PARTS.items() for field in fields(kind)}  # name of a field -> its part
NOT_COMPARED = ("seed", *(field.name for field in fields(Execution)))  # runs that differ in these alone are repetitions


def defaults(data: str) -> dict[str, Any]:
    """All fields of a configuration for a data set, flat: small enough for a first result on a laptop."""
    found = find_descriptor(data)
    return Config().flat() | dict(found.defaults if found else {}) | {"data": data}


def target_of(data: str) -> float | None:
    """The accuracy that rounds and bytes are counted to on a data set, unless told; None where it has none."""
    found = find_descriptor(data)
    return found.target if found else None


def full_paths(values: dict[str, Any]) -> dict[str, Any]:
    """Flat values with the paths of data in full, so that a run can be resumed from anywhere."""
    full = dict(values)
    if full.get("data_dir"):
        full["data_dir"] = str(Path(full["data_dir"]).expanduser().resolve())
    found = find_descriptor(str(full.get("data", "")))
    if isinstance(found, OwnData):
        full["data"] = f"{found.name.partition(':')[0]}:{found.path.resolve()}"
    return full
