"""What commands print and where: for people, scripts and experiment trackers; the folders they make."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback


@dataclass(frozen=True)
class OutputOptions:
    """The flags of `Output`."""

    quiet: bool = False
    """Print nothing but warnings and errors."""
    json: bool = False
    """Print the results as JSON, as in results.json, instead of the table."""
    tensorboard: str | None = None
    """Also write the curves for TensorBoard below this folder."""
    callback: tuple[str, ...] = ()
    """Classes of your own that are told of each round, as file.py:ClassName; examples/wandb_callback.py has one."""


@dataclass(frozen=True)
class Output:
    """What is told to whom."""

    quiet: bool = False  # no progress, no table
    json: bool = False  # the results on standard output, as JSON and nothing else
    callbacks: tuple[Callback, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Output:
        """From the flags; a callback that cannot be had shows before any folder is made."""
        from fedmim.experiments.methods import find_callback

        callbacks = [find_callback(name) for name in values["callback"]]
        if values["tensorboard"]:
            from fedmim.report.tensorboard import TensorBoard

            callbacks.append(TensorBoard(Path(values["tensorboard"])))
        return cls(values["quiet"], values["json"], tuple(callbacks))

    def say(self, text: str) -> None:
        """A line for people."""
        if not (self.quiet or self.json):
            print(text)


def free_folder(name: str) -> Path:
    """The first of runs/name, runs/name-2, ... that is not taken."""
    names = (Path("runs") / (name if number == 1 else f"{name}-{number}") for number in count(1))
    return next(path for path in names if not path.exists())
