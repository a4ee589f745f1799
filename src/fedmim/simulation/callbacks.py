"""Callbacks: objects that are called during a run, such as an experiment tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fedmim.algorithms import Algorithm
    from fedmim.simulation.record import Record


@dataclass(frozen=True)
class RunInfo:
    """What a callback knows about a run."""

    name: str  # of the run folder, or the method's title if there is none
    settings: dict[str, Any]  # method, hyper_parameters, and all settings by name

    @classmethod
    def of(cls, name: str, algorithm: Algorithm, settings: Mapping[str, Any]) -> RunInfo:
        """The info of a run of this algorithm."""
        return cls(name, {"method": algorithm.title, "hyper_parameters": asdict(algorithm), **settings})


class Callback(Protocol):
    """Called during each run: override what you need. An error in a callback ends the run, which can be resumed.

    One object may serve several runs, one after the other. When a run is resumed, `on_start` is called again and
    `on_round` continues with the first new round.
    """

    def on_start(self, run: RunInfo) -> None:
        """A run starts or resumes."""

    def on_round(self, run: RunInfo, record: Record) -> None:
        """A round has ended."""

    def on_end(self, run: RunInfo) -> None:
        """The run has ended, or was interrupted."""


@contextmanager
def telling(callbacks: Sequence[Callback], run: RunInfo) -> Iterator[Callable[[Record], None]]:
    """Call the callbacks at the start and end of a run; yields a function to call after each round."""
    with ExitStack() as stack:
        for callback in callbacks:
            callback.on_start(run)
            stack.callback(callback.on_end, run)

        def tell(record: Record) -> None:
            for callback in callbacks:
                callback.on_round(run, record)

        yield tell
