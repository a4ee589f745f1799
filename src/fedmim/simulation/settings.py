"""Settings, which decide the bits of a run, and Execution, which does not."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from fedmim.algorithms.base import LARGEST
from fedmim.errors import UserError

Engine = Literal["auto", "serial", "vectorised", "processes"]
Weighting = Literal["equal", "samples"]
History = Literal["server", "catch-up", "broadcast"]
LARGEST_COUNT = 2**63 - 1  # as torch and TOML count
MOST_WORKERS = 4096


@dataclass(frozen=True)
class Settings:
    """The protocol of a run, the same for every method: with the task it decides the result to the bit."""

    rounds: int = 100
    """T, the number of rounds."""
    participation: float = 0.1
    """The fraction of clients that train in a round: exactly max(1, round(participation * clients)) of them."""
    local_epochs: int = 5
    """E, the passes over its own data that a client makes in a round."""
    local_steps: int | None = None
    """K, minibatch steps per round, the same for every client, in place of local_epochs."""
    batch_size: int | None = 50
    """Samples in a minibatch (the last of an epoch may be smaller); None: all of the client's data."""
    drop_last: bool = False
    """Leave out the last minibatch of an epoch where it is smaller than the others, as batch norm needs, which cannot
    train on one sample. A client with less than one minibatch keeps it."""
    lr: float = 0.1
    """Local learning rate eta."""
    lr_decay: float = 0.998
    """The local learning rate is multiplied by this after every round."""
    weight_decay: float = 1e-3
    """Added to the gradient as weight_decay * w, in every method at the point where it takes the gradient."""
    clip_norm: float | None = 10.0
    """Gradients longer than this are scaled down to it, before weight decay; None: no clipping."""
    server_lr: float | None = None
    """Server learning rate eta_g; None: the method's own (FedAdam 0.1, the others 1)."""
    weighting: Weighting = "equal"
    """How clients weigh in the mean: equal (the paper's objective), or samples (by the size of their data)."""
    history: History = "server"
    """Who keeps the past global models that a method's broadcast is made of (FedMIM's increments): server (it sends
    the broadcast, clients keep nothing), catch-up (clients keep models, the server sends each those that it lacks),
    broadcast (clients keep models, the new one goes to all of them in every round). It changes the bytes, never the
    model, and has no effect on methods that need no past models."""
    eval_every: int = 1
    """Evaluate on the test data after every this many rounds, and after the last."""
    seed: int = 0
    """Client samples, minibatches and augmentation are keyed by it."""

    def __post_init__(self) -> None:
        for name in ("rounds", "local_epochs", "eval_every"):
            at_least(name, getattr(self, name), 1)
        for name in ("local_steps", "batch_size"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, 0)
        for name in ("lr", "lr_decay"):
            _positive(name, getattr(self, name))
        if self.clip_norm is not None:
            _positive("clip_norm", self.clip_norm, most=1e30)  # which may be a way to say: no clipping
        if self.server_lr is not None:
            _positive("server_lr", self.server_lr)
        if not 0 < self.participation <= 1:
            raise UserError(f"participation: must be above 0 and at most 1, got {self.participation}")
        if not 0 <= self.weight_decay <= LARGEST:
            raise UserError(
                f"weight_decay: must be finite and not negative, at most {LARGEST:g}, got {self.weight_decay:g}"
            )
        _one_of("weighting", self.weighting, get_args(Weighting))
        _one_of("history", self.history, get_args(History))
        self._check_last_lr()

    def _check_last_lr(self) -> None:
        """The learning rate grows or falls from round to round: where the first is right, the last one decides."""
        try:
            last = self.lr_at(self.rounds - 1)
        except OverflowError:
            last = math.inf
        if last > LARGEST:
            raise UserError(
                f"lr_decay: {self.lr_decay:g} brings the learning rate to {last:g} in round {self.rounds}, and it must "
                f"be at most {LARGEST:g} in every round: lower lr_decay or rounds"
            )

    def lr_at(self, round: int) -> float:
        """The local learning rate of round t = 0, 1, ..."""
        return self.lr * self.lr_decay**round

    def steps(self, samples: int) -> int:
        """K, the number of local steps of a client with this many samples."""
        return self.local_steps or self.local_epochs * self.batches(samples)

    def batches(self, samples: int) -> int:
        """The number of minibatches in a pass over this many samples."""
        parts = samples / (self.batch_size or samples)
        return max(1, math.floor(parts)) if self.drop_last else math.ceil(parts)

    def active(self, clients: int) -> int:
        """S, the number of N clients that train in a round."""
        return max(1, round(self.participation * clients))

    def fixed(self) -> dict[str, Any]:
        """The settings that a run keeps to its end. The others may change when it is resumed: they say how far it goes
        and in which rounds it is evaluated, and move no bit of the model."""
        return {name: value for name, value in asdict(self).items() if name not in ("rounds", "eval_every")}


@dataclass(frozen=True)
class Execution:
    """Where and how a run is computed. All of it may change when a run is resumed."""

    engine: Engine = "auto"
    """How clients are executed: serial, vectorised (a round's clients in one batched call; for models made of
    matrix products), processes (one per core), or auto, which picks by model and work. Serial and processes give the
    same bits, vectorised the same numbers up to rounding."""
    workers: int | None = None
    """How many worker processes; None: one for each core, with device cuda for each visible GPU."""
    device: str = "cpu"
    """Where to train: cpu, cuda (the processes engine spreads clients over the visible GPUs), cuda:1, ..."""
    data_dir: str | None = None
    """The folder with the data sets; None: $FEDMIM_DATA, else ./data."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            at_least("workers", self.workers, 1, most=MOST_WORKERS)
        _one_of("engine", self.engine, get_args(Engine))


def at_least(name: str, value: object, least: int, most: int = LARGEST_COUNT) -> None:
    """Reject what is not a whole number in this range."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}: must be a whole number of at least {least}, got {value}")
    if value > most:
        raise UserError(f"{name}: must be a whole number of at most {most}")


def _positive(name: str, value: object, most: float = LARGEST) -> None:
    if not (isinstance(value, int | float) and value > 0 and value < math.inf):
        raise UserError(f"{name}: must be a finite number above 0, got {value}")
    if value > most:
        raise UserError(f"{name}: must be at most {most:g}, got {value:g}")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UserError(f"{name}: must be one of {', '.join(known)}, got {value!r}")
