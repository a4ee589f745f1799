"""The output of commands: text for people, JSON for scripts, callbacks for experiment trackers, and folders."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import Callback


@dataclass(frozen=True)
class OutputOptions:
    """The output options."""

    quiet: bool = False
    """Print only warnings and errors."""
    json: bool = False
    """Print the results as JSON, in the format of results.json, instead of a table."""
    tensorboard: str | None = None
    """Also write the curves for TensorBoard to this folder."""
    callback: tuple[str, ...] = ()
    """Your own callbacks, called after every round, as file.py:ClassName. For an example, see
    examples/wandb_callback.py."""


@dataclass(frozen=True)
class Output:
    """What a command prints, and the callbacks of its runs."""

    quiet: bool = False  # no progress, no table
    json: bool = False  # only the results on standard output, as JSON
    callbacks: tuple[Callback, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Output:
        """Build from the flags. Callbacks are created here, before any folder is, so that errors show early."""
        from fedmim.experiments.methods import find_callback

        callbacks = [find_callback(name) for name in values["callback"]]
        if values["tensorboard"]:
            from fedmim.report.tensorboard import TensorBoard

            callbacks.append(TensorBoard(Path(values["tensorboard"])))
        return cls(values["quiet"], values["json"], tuple(callbacks))

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not (self.quiet or self.json):
            print(text)


def free_folder(name: str) -> Path:
    """The first of runs/name, runs/name-2, ... that does not exist."""
    names = (Path("runs") / (name if number == 1 else f"{name}-{number}") for number in count(1))
    return next(path for path in names if not path.exists())
