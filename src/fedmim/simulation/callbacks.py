"""Callbacks: objects that are called as a run goes on, such as an experiment tracker."""

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

    name: str  # the run folder's, or else the method's title
    settings: dict[str, Any]  # method, hyper_parameters, and every setting by its name

    @classmethod
    def of(cls, name: str, algorithm: Algorithm, settings: Mapping[str, Any]) -> RunInfo:
        """The info of a run of this algorithm."""
        return cls(name, {"method": algorithm.title, "hyper_parameters": asdict(algorithm), **settings})


class Callback(Protocol):
    """Called during each run: override what you need. An error in a callback ends the run, which can be resumed.

    One object may serve several runs one after the other. A resumed run starts again, at its first new round.
    """

    def on_start(self, run: RunInfo) -> None:
        """A run begins or goes on."""

    def on_round(self, run: RunInfo, record: Record) -> None:
        """A round has ended."""

    def on_end(self, run: RunInfo) -> None:
        """The run has ended, or was interrupted."""


@contextmanager
def telling(callbacks: Sequence[Callback], run: RunInfo) -> Iterator[Callable[[Record], None]]:
    """Call the callbacks at the start and the end of a run; the value is a function to call after each round."""
    with ExitStack() as stack:
        for callback in callbacks:
            callback.on_start(run)
            stack.callback(callback.on_end, run)

        def tell(record: Record) -> None:
            for callback in callbacks:
                callback.on_round(run, record)

        yield tell
