"""Callbacks: objects that are called during a run, such as an experiment tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from fedmim.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from fedmim.algorithms import Algorithm
    from fedmim.simulation.record import Record

MakeModel = Callable[[], "nn.Module"]


@dataclass(frozen=True)
class RunInfo:
    """What a callback knows about a run."""

    name: str
    """The name of the run folder, or the method's title if there is none."""
    settings: dict[str, Any]
    """The method, hyper_parameters, and all settings by name."""
    _model: MakeModel | None = field(default=None, repr=False, compare=False)

    def model(self) -> nn.Module:
        """A copy of the current global model, in evaluation mode. Only for use in `on_round`."""
        if self._model is None:
            raise UserError("model: a callback has the model in on_round only")
        return self._model()

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
        """A round has ended. `run.model()` is the current global model."""

    def on_end(self, run: RunInfo) -> None:
        """The run has ended, or was interrupted."""


@contextmanager
def telling(callbacks: Sequence[Callback], run: RunInfo) -> Iterator[Callable[[Record, MakeModel], None]]:
    """Call the callbacks at the start and end of a run; yields a function to call after each round.

    Its second argument makes a copy of the model, if a callback asks for it.
    """
    with ExitStack() as stack:
        for callback in callbacks:
            callback.on_start(run)
            stack.callback(callback.on_end, run)

        def tell(record: Record, model: MakeModel) -> None:
            now = replace(run, _model=model)
            for callback in callbacks:
                callback.on_round(now, record)

        yield tell
