"""The configuration of a run: problem, settings and execution. TOML files and flags have one flat list of names.

The problem and the settings determine the result of a run, bit for bit. The execution does not affect it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedmim.data.catalogue import find_descriptor
from fedmim.data.descriptor import OwnData, data_directory
from fedmim.errors import UserError, unknown
from fedmim.experiments.own_code import OwnCode
from fedmim.experiments.sources import IN_MEMORY, AnySource, Source, TaskSource, check_in_memory, own_data, task_of
from fedmim.experiments.toml_values import make, plain, plain_value
from fedmim.simulation.settings import Execution, Settings, at_least

if TYPE_CHECKING:
    from fedmim.simulation.task import Task

LARGEST_IMAGE = 10_000  # pixels per side
OWN_DATA = {"split": "natural", "clients": 0, "model": "own", "augment": True, "colour": 0.0, "image_size": None}
DEFAULT_DATA = "mnist1d"  # default of the commands; `Problem.data` is part of the identity of stored runs


@dataclass(frozen=True)
class Problem:
    """The learning problem: the data, its split over clients, and the model."""

    data: str = "digits"
    """Data set. `fedmim data` lists them: mnist1d, digits and synthetic:A,B (no download needed), cifar10, ...,
    tiny-imagenet:N (N classes), folder:PATH (one folder of images per class), tensors:FILE.safetensors. Or your own, as
    file.py:function: it returns a fedmim.Task, with its clients and model, and may take the argument seed."""
    split: str = "dirichlet:0.1"
    """How the training data is split over the clients: iid, dirichlet:U (label priors from Dir(U); smaller U is more
    heterogeneous), pathological:C (at most C classes per client), natural (the clients given by the data set)."""
    clients: int = 100
    """Number of clients, N. With split natural, 0 means all clients of the data set."""
    model: str = "mlp"
    """Network: logistic, mlp, mlp2, cnn, lenet, resnet18; for text: lstm, transformer. Or your own, as file.py:Name: a
    class or function that returns a torch.nn.Module and may take the arguments input_shape, classes and tokens."""
    augment: bool = True
    """Augment training images with random crops and flips, if the data set defines them."""
    colour: float = 0.0
    """Strength of the colour shift: each client has its own brightness and saturation. 0 disables it."""
    image_size: int | None = None
    """Resize the images of folder:PATH to this many pixels per side; none: they must all have the same size."""
    validation: float = 0.0
    """Hold out this fraction of the training data and evaluate on it instead of the test data, to select settings."""

    def __post_init__(self) -> None:
        if own_data(self.data):
            for name, value in OWN_DATA.items():
                if getattr(self, name) != value:
                    raise UserError(
                        f"{name}: does not apply to {self.short('data')}, whose task has its own clients and model; "
                        f"leave it at {plain_value(value)}"
                    )
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
        return task_of(self.source(seed, data_dir), self._split, self.model, seed)

    def source(self, seed: int = 0, data_dir: str | None = None) -> AnySource:
        """Where the data of this problem comes from. With own code, the seed is part of it."""
        data = Source(self.data, data_directory(data_dir), self.image_size, self.validation)
        own = own_data(self.data) or self.data.startswith(IN_MEMORY) or OwnCode.named(self.model)
        return TaskSource(data, self._split, self.model, seed) if own else data

    @property
    def _split(self) -> tuple[tuple[str, Any], ...]:
        return tuple((name, getattr(self, name)) for name in ("split", "clients", "augment", "colour"))

    @property
    def kind(self) -> str:
        """A short name of the data, for folders: cifar10, folder, or the name of the user's file."""
        own = own_data(self.data)
        return own.file.stem if own else self.data.partition(":")[0]

    def short(self, name: Literal["data", "model"]) -> str:
        """The data or model for titles: the user's own without folder and hash."""
        own = own_data(self.data) if name == "data" else OwnCode.named(self.model)
        return own.short if own else str(getattr(self, name))


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
    return Config().flat() | dict(found.defaults if found else own_problem(data)) | {"data": data}


def own_problem(data: str) -> dict[str, Any]:
    """The only valid settings of a problem whose data is the user's own task; of other data, none."""
    return dict(OWN_DATA) if own_data(data) else {}


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


def pinned(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flat values in which the user's own data and model have full paths and the hashes of their files."""
    full = dict(values)
    data, model = (str(full.get(name, "")) for name in ("data", "model"))
    check_in_memory(data)
    for name, code in {"data": own_data(data), "model": OwnCode.named(model)}.items():
        if code:
            full[name] = str(code.pinned(name))
    return full
