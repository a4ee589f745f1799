"""The configuration of a run: problem, settings and execution. TOML files and flags have one flat list of names.

The problem and the settings determine the result of a run, bit for bit. The execution does not affect it.
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
    from fedmim.data import Dataset
    from fedmim.simulation.task import Task

LARGEST_IMAGE = 10_000  # pixels per side
DEFAULT_DATA = "mnist1d"  # default of the commands; `Problem.data` is part of the identity of stored runs


@dataclass(frozen=True)
class Problem:
    """The learning problem: the data, its split over clients, and the model."""

    data: str = "digits"
    """Data set. `fedmim data` lists them: mnist1d, digits and synthetic:A,B (no download needed), cifar10, ...,
    tiny-imagenet:N (N classes), folder:PATH (one folder of images per class), tensors:FILE.safetensors."""
    split: str = "dirichlet:0.1"
    """How the training data is split over the clients: iid, dirichlet:U (label priors from Dir(U); smaller U is more
    heterogeneous), pathological:C (at most C classes per client), natural (the clients given by the data set)."""
    clients: int = 100
    """Number of clients, N. With split natural, 0 means all clients of the data set."""
    model: str = "mlp"
    """Network: logistic, mlp, mlp2, cnn, lenet, resnet18; for text: lstm, transformer."""
    augment: bool = True
    """Augment training images with random crops and flips, if the data set defines them."""
    colour: float = 0.0
    """Strength of the colour shift: each client has its own brightness and saturation. 0 disables it."""
    image_size: int | None = None
    """Resize the images of folder:PATH to this many pixels per side; none: they must all have the same size."""
    validation: float = 0.0
    """Hold out this fraction of the training data and evaluate on it instead of the test data, to select settings."""

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 0 if self.split == "natural" else 1)
        if self.image_size is not None and not 1 <= self.image_size <= LARGEST_IMAGE:
            raise UserError(
                f"image_size: must be a number of pixels from 1 to {LARGEST_IMAGE:,}, got {self.image_size}"
            )
        if not 0 <= self.colour <= 1:
            raise UserError(f"colour: must be between 0 and 1, got {self.colour}")
        if not 0 <= self.validation < 1:
            raise UserError(f"validation: must be at least 0 and below 1, got {self.validation}")

    def task(self, seed: int = 0, data_dir: str | None = None) -> Task:
        """The task of this problem for a seed. The last task is cached: the methods of a comparison share it."""
        return _task(self, seed, self.source(data_dir))

    def source(self, data_dir: str | None = None) -> Source:
        """Where the data of this problem comes from."""
        return Source(self.data, data_directory(data_dir), self.image_size, self.validation)


@dataclass(frozen=True)
class Source:
    """What determines the tensors of a problem. Problems with other splits, models and seeds have the same."""

    data: str
    data_dir: Path
    image_size: int | None
    validation: float

    def load(self) -> Dataset:
        """The data set. The last one is cached, and one in shared memory is not loaded."""
        return _shared.get(self) or _loaded(self)


_shared: dict[Source, Dataset] = {}  # at most one


def use_shared(source: Source, dataset: Dataset) -> None:
    """Use this data set, which is in shared memory, instead of loading it, until the next one is shared."""
    forget_data()
    _shared[source] = dataset


def forget_data() -> None:
    """Free the cached task and data set."""
    _task.cache_clear()
    _loaded.cache_clear()
    _shared.clear()


@lru_cache(maxsize=1)
def _loaded(source: Source) -> Dataset:
    from fedmim.data import load, with_validation

    dataset = load(source.data, source.data_dir, source.image_size)
    return with_validation(dataset, source.validation) if source.validation else dataset


@lru_cache(maxsize=1)
def _task(problem: Problem, seed: int, source: Source) -> Task:
    from fedmim.simulation.task import Task

    own = {name: value for name, value in asdict(problem).items() if name not in ("data", "image_size", "validation")}
    return Task.of_data(source.load(), **own, seed=seed)


@dataclass(frozen=True)
class Config:
    """The configuration of a run without its method. TOML files and flags list the fields of the parts as one."""

    problem: Problem = Problem()
    settings: Settings = Settings()  # noqa: RUF009  # frozen, as Problem
    execution: Execution = Execution()  # noqa: RUF009

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str) -> Config:
        """Build from flat plain values. Error messages start with `where`, the source of the values."""
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
        """All fields as TOML values."""
        return plain(self.problem) | plain(self.settings) | plain(self.execution)

    def replace(self, **changes: Any) -> Config:
        """A copy with some fields changed, by their flat names."""
        return Config.of(self.flat() | changes, "config")

    def task(self) -> Task:
        """The task of this configuration."""
        return self.problem.task(self.settings.seed, self.execution.data_dir)


PARTS: dict[str, Any] = {"problem": Problem, "settings": Settings, "execution": Execution}
PART_OF = {field.name: part for part, kind in PARTS.items() for field in fields(kind)}  # name of a field -> its part
NOT_COMPARED = ("seed", *(field.name for field in fields(Execution)))  # runs that differ only in these are repetitions


def defaults(data: str) -> dict[str, Any]:
    """The default configuration for a data set, as flat values: small enough to run on a laptop."""
    found = find_descriptor(data)
    return Config().flat() | dict(found.defaults if found else {}) | {"data": data}


def target_of(data: str) -> float | None:
    """The default target accuracy of a data set, for rounds and bytes to target; None if it has none."""
    found = find_descriptor(data)
    return found.target if found else None


def full_paths(values: dict[str, Any]) -> dict[str, Any]:
    """Flat values with absolute data paths, so that a run can be resumed from any directory."""
    full = dict(values)
    if full.get("data_dir"):
        full["data_dir"] = str(Path(full["data_dir"]).expanduser().resolve())
    found = find_descriptor(str(full.get("data", "")))
    if isinstance(found, OwnData):
        full["data"] = f"{found.name.partition(':')[0]}:{found.path.resolve()}"
    return full
