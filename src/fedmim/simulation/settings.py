"""Settings determine the result of a run; Execution determines how it is computed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from fedmim.algorithms.base import LARGEST
from fedmim.display import short_repr
from fedmim.errors import UserError
from fedmim.simulation.local_work import LocalWork
from fedmim.simulation.lr_schedule import LrSchedule

Engine = Literal["auto", "serial", "vectorised", "processes", "ray"]
Weighting = Literal["equal", "samples"]
History = Literal["server", "catch-up", "broadcast"]
AggregationRule = Literal["mean", "trimmed-mean", "median"]
OnDivergence = Literal["continue", "stop"]
Late = Literal["drop", "partial"]
PerClient = Literal["off", "global", "personal"]
LARGEST_COUNT = 2**63 - 1  # the limit of torch and TOML
MOST_WORKERS = 4096
RUN_LENGTH = ("rounds", "eval_every", "until", "patience")  # how long a run is, and when it is evaluated
UNUSED_DECAYS = (0.998, 1.0)  # of schedules that do not use lr_decay: its default, and the default of some data sets
PARTICIPATION: dict[str, float | None] = {  # the settings of simulated participation, and their defaults
    "work": None,
    "dropout": 0.0,
    "speed_spread": 0.0,
    "deadline": None,
    "availability": 1.0,
}


@dataclass(frozen=True, repr=False)
class Settings:
    """The protocol of a run, the same for every method. With the task it determines the result bit for bit."""

    rounds: int = 100
    """T, the number of rounds."""
    participation: float = 0.1
    """The fraction of clients that train per round: exactly max(1, round(participation * clients)) clients."""
    local_epochs: float = 5
    """E, the number of passes over its data that a client makes per round. May be a fraction: with 0.5, a client takes
    ceil(0.5 * minibatches per epoch) steps, on the first part of its shuffled data."""
    local_steps: int | None = None
    """K, minibatch steps per round, the same for every client; replaces local_epochs."""
    batch_size: int | None = 50
    """Samples per minibatch (the last one of an epoch may be smaller); None: all of the client's data."""
    drop_last: bool = False
    """Drop the last minibatch of an epoch if it is smaller than the others. Batch norm needs this, because it cannot
    train on one sample. A client with less than one minibatch keeps it."""
    lr: float = 0.1
    """Local learning rate eta."""
    lr_schedule: str = "exponential"
    """How the local learning rate changes over the rounds: exponential (multiplied by lr_decay after every round, as in
    the paper), constant, cosine (half a cosine, from lr in the first round towards 0 after the last), or
    step:EVERY,FACTOR (multiplied by FACTOR after every EVERY rounds)."""
    lr_decay: float = 0.998
    """For lr_schedule exponential: the local learning rate is multiplied by this factor after every round."""
    weight_decay: float = 1e-3
    """Adds weight_decay * w to the gradient, with w the point at which the method takes the gradient."""
    clip_norm: float | None = 10.0
    """Clip gradients to this norm, before weight decay; None: no clipping."""
    server_lr: float | None = None
    """Server learning rate eta_g; None: the method's default (0.1 for FedAdam, FedYogi and FedAdagrad, else 1)."""
    weighting: Weighting = "equal"
    """Weights of the clients in the mean: equal (the paper's objective) or samples (by number of samples)."""
    history: History = "server"
    """Who keeps the past global models that a method needs (for FedMIM's increments): server (clients keep nothing),
    catch-up (clients keep models, and the server sends each client the models it is missing), broadcast (clients keep
    models, and the server sends the new model to all clients in every round). Changes the bytes sent, never the
    result. No effect on methods that need no past models."""
    aggregation: AggregationRule = "mean"
    """How uploads are combined: mean, or for each coordinate trimmed-mean or median, which bound the influence of a few
    dishonest clients (docs/privacy.md). The last two hold all uploads of a round in memory."""
    trim: float = 0.2
    """For aggregation trimmed-mean: the fraction of the uploads dropped at each end of every coordinate."""
    max_distance: float | None = None
    """Reject uploads that are further than this from what the client would have sent with zero gradients (L2 norm over
    all its vectors); None: no limit."""
    max_distance_ratio: float | None = None
    """Reject uploads that are further than this many times the median distance of the round's uploads; None: no limit.
    Holds all uploads of a round in memory."""
    min_replies: int = 1
    """A round with fewer accepted uploads than this changes nothing."""
    dp_noise: float | None = None
    """Noise multiplier z of client-level differential privacy (docs/privacy.md): the noise on the sum of the uploads
    has the standard deviation z * dp_clip. None: no differential privacy. Requires dp_clip and local_steps."""
    dp_clip: float | None = None
    """C, the distance from what a client would have sent with zero gradients to which its upload is clipped (L2 norm
    over all its vectors); with dp_clip_quantile, of the first round."""
    dp_clip_quantile: float | None = None
    """Adapt C after every round so that this fraction of the uploads is not clipped; None: C is fixed."""
    dp_delta: float = 1e-5
    """The delta of (epsilon, delta), for which epsilon is recorded; must be below 1/N."""
    eval_every: int = 1
    """Evaluate on the test data every this many rounds, and after the last round."""
    until: float | None = None
    """Stop at the first evaluation whose test accuracy reaches this value, to measure the rounds to a target; None:
    train all rounds. To select models or settings, also set validation."""
    patience: int | None = None
    """Stop at the first evaluation after this many rounds in a row without a new best test accuracy; None: train all
    rounds. To select models or settings, also set validation."""
    seed: int = 0
    """Random seed of the client sampling, the minibatches and the augmentation."""
    work: str | None = None
    """Unequal local work: uniform:LOW,HIGH multiplies the local epochs (or local_steps) of each client and round by a
    factor drawn from [LOW, HIGH], rounded up to whole epochs, or to steps if local_epochs is a fraction (or for
    local_steps). With uniform:LOW,HIGH,PART only a client drawn with probability PART is unequal; uniform:0,1,0.9 is
    FedProx's setting, 90 % of the clients do 1 to E epochs. None: all do the same."""
    dropout: float = 0.0
    """The probability that a client of a round receives the model but does not reply."""
    speed_spread: float = 0.0
    """Standard deviation of the logarithm of the clients' speeds, which are drawn once per client, with median 1. A
    client's time in a round is its number of local steps divided by its speed."""
    deadline: float | None = None
    """The time after which the server ends a round, in units of the time of a client with median speed and the median
    number of steps; None: it waits for all clients."""
    late: Late = "drop"
    """What happens to clients that are not done at the deadline: drop (they do not count), or partial (they do as many
    local steps as fit)."""
    availability: float = 1.0
    """The part of the day in which a client is available, in a window of its own. Only available clients are drawn;
    if there are too few, all of them."""
    rounds_per_day: int = 24
    """For availability: the number of rounds per simulated day."""

    def __post_init__(self) -> None:
        for name in ("rounds", "eval_every"):
            at_least(name, getattr(self, name), 1)
        self._check_local_epochs()
        for name in ("local_steps", "batch_size", "patience"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, 0)
        for name in ("lr", "lr_decay"):
            _positive(name, getattr(self, name))
        if self.clip_norm is not None:
            _positive("clip_norm", self.clip_norm, most=1e30)  # a huge value may mean: no clipping
        if self.server_lr is not None:
            _positive("server_lr", self.server_lr)
        if not 0 < self.participation <= 1:
            raise UserError(f"participation: must be above 0 and at most 1, got {self.participation}")
        if not 0 <= self.weight_decay <= LARGEST:
            raise UserError(f"weight_decay: must be between 0 and {LARGEST:g}, got {self.weight_decay:g}")
        _one_of("weighting", self.weighting, get_args(Weighting))
        _one_of("history", self.history, get_args(History))
        self._check_aggregation()
        self._check_participation()
        self._check_privacy()
        self._check_schedule()
        if self.until is not None and not 0 < self.until <= 1:
            raise UserError(f"until: must be above 0 and at most 1, got {self.until}")

    def _check_local_epochs(self) -> None:
        """Whole numbers of epochs become int, so that files and identities have 5 and never 5.0."""
        _positive("local_epochs", self.local_epochs, most=LARGEST_COUNT)
        if float(self.local_epochs).is_integer():
            object.__setattr__(self, "local_epochs", int(self.local_epochs))

    def _check_schedule(self) -> None:
        """The learning rate changes monotonically, and the first is valid, so it is enough to check the last."""
        exponential = LrSchedule.parse(self.lr_schedule).name == "exponential"
        if not exponential and self.lr_decay not in UNUSED_DECAYS:
            raise UserError(
                f"lr_decay: has no effect with lr_schedule {self.lr_schedule}; remove lr_decay, or set lr_schedule to "
                "exponential"
            )
        try:
            last = self.lr_at(self.rounds - 1)
        except OverflowError:
            last = math.inf
        if last > LARGEST:
            what = f"lr_decay: {self.lr_decay:g}" if exponential else f"lr_schedule: {self.lr_schedule}"
            raise UserError(
                f"{what} gives a learning rate of {last:g} in round {self.rounds}; it must be at most {LARGEST:g} in "
                f"every round: lower {'lr_decay' if exponential else 'FACTOR'} or rounds"
            )

    def _check_aggregation(self) -> None:
        _one_of("aggregation", self.aggregation, get_args(AggregationRule))
        if self.aggregation != "mean" and self.weighting == "samples":
            raise UserError(
                f'aggregation: {self.aggregation} has no weights; use weighting "equal" or aggregation "mean"'
            )
        if not 0 < self.trim < 0.5:
            raise UserError(f"trim: must be above 0 and below 0.5, got {self.trim}")
        if self.max_distance is not None:
            _positive("max_distance", self.max_distance, most=1e30)
        if self.max_distance_ratio is not None:
            _positive("max_distance_ratio", self.max_distance_ratio)
            if self.max_distance_ratio < 1:
                raise UserError(f"max_distance_ratio: must be at least 1, got {self.max_distance_ratio}")
        at_least("min_replies", self.min_replies, 1)

    def _check_participation(self) -> None:
        LocalWork.parse(self.work)
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout: must be at least 0 and below 1, got {self.dropout}")
        if not 0 <= self.speed_spread <= 10:
            raise UserError(f"speed_spread: must be between 0 and 10, got {self.speed_spread}")
        if self.deadline is not None:
            _positive("deadline", self.deadline)
        _one_of("late", self.late, get_args(Late))
        if self.late != "drop" and self.deadline is None:
            raise UserError(f"late: {self.late} has no effect without deadline; set deadline or remove late")
        if not 0 < self.availability <= 1:
            raise UserError(f"availability: must be above 0 and at most 1, got {self.availability}")
        at_least("rounds_per_day", self.rounds_per_day, 1)

    def _check_privacy(self) -> None:
        for name in ("dp_noise", "dp_clip"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        for name in ("dp_clip_quantile", "dp_delta"):
            value = getattr(self, name)
            if not (value is None and name == "dp_clip_quantile") and not 0 < value < 1:
                raise UserError(f"{name}: must be above 0 and below 1, got {value}")
        if self.dp_noise is None:
            for name in ("dp_clip", "dp_clip_quantile"):
                if getattr(self, name) is not None:
                    raise UserError(f"{name}: has no effect without dp_noise; set dp_noise or remove {name}")
            return
        if self.dp_clip is None:
            raise UserError("dp_clip: must be set with dp_noise; try 0.5, and let dp_clip_quantile adapt it")
        if self.local_steps is None:
            raise UserError("local_steps: must be set with dp_noise, because local_epochs reveals the amount of data")
        unbounded = "because one client could change the model without bound otherwise"
        for name, value in (("weighting", "equal"), ("aggregation", "mean"), ("max_distance_ratio", None)):
            if getattr(self, name) != value:
                raise UserError(f"{name}: must be {'none' if value is None else value} with dp_noise, {unbounded}")
        for name in ("work", "deadline", "availability"):  # a client that drops out counts as one that sent zero
            if getattr(self, name) != (default := PARTICIPATION[name]):
                why = "because epsilon holds for S of N clients drawn at random, with equal work"
                raise UserError(f"{name}: must be {default or 'none'} with dp_noise, {why}")
        if self.min_replies != 1:
            raise UserError("min_replies: must be 1 with dp_noise, because whether a round counts is not private")

    def __repr__(self) -> str:
        return short_repr(self)

    def lr_at(self, round: int) -> float:
        """The local learning rate of round t = 0, 1, ..."""
        return self.lr * LrSchedule.parse(self.lr_schedule).factor(round, self.rounds, self.lr_decay)

    def steps(self, samples: int, factor: float = 1.0) -> int:
        """K, the number of local steps of a client with this many samples that does this multiple of the usual work."""
        count = self.local_steps or self.local_epochs
        if isinstance(count, float):  # exactly as written: 0.07 of 100 minibatches are 7 steps, in floats 8
            return max(1, math.ceil(Fraction(str(count)) * Fraction(factor) * self.batches(samples)))
        if factor != 1:
            count = max(1, math.ceil(factor * count))
        return count if self.local_steps else count * self.batches(samples)

    def batches(self, samples: int) -> int:
        """The number of minibatches per epoch with this many samples."""
        parts = samples / (self.batch_size or samples)
        return max(1, math.floor(parts)) if self.drop_last else math.ceil(parts)

    def active(self, clients: int) -> int:
        """S, the number of clients that train per round, out of this many."""
        return max(1, round(self.participation * clients))

    @property
    def local_work(self) -> LocalWork:
        """The distribution of the local work."""
        return LocalWork.parse(self.work)

    @property
    def full_turnout(self) -> bool:
        """Whether all clients of a round do the usual work and reply."""
        return self.work is None and not self.dropout and not self.timed

    @property
    def timed(self) -> bool:
        """Whether the time of a round is simulated."""
        return self.speed_spread > 0 or self.deadline is not None

    @property
    def stops_early(self) -> bool:
        """Whether the run may stop before its last round."""
        return self.until is not None or self.patience is not None

    @property
    def fixed_steps(self) -> int | None:
        """K if it is the same for all clients in all rounds, else None."""
        return self.local_steps if self.work is None and self.late == "drop" else None

    @property
    def measures_distance(self) -> bool:
        """Whether the distance of each upload from its public point is needed."""
        return any(each is not None for each in (self.max_distance, self.max_distance_ratio, self.dp_noise))

    @property
    def holds_uploads(self) -> bool:
        """Whether all uploads of a round are needed at once."""
        return self.aggregation != "mean" or self.max_distance_ratio is not None

    @property
    def needs_uploads(self) -> bool:
        """Whether the server needs each upload, and not only their sum."""
        return self.holds_uploads or self.measures_distance

    def fixed(self) -> dict[str, Any]:
        """The settings that must not change when a run is resumed.

        The others set how long it runs and when it is evaluated, and do not affect the model. The learning rates of a
        cosine schedule depend on the number of rounds.
        """
        free = RUN_LENGTH[1:] if LrSchedule.parse(self.lr_schedule).needs_rounds else RUN_LENGTH
        return {name: value for name, value in asdict(self).items() if name not in free}


@dataclass(frozen=True, repr=False)
class Execution:
    """Where and how a run is computed. All of these may change when a run is resumed."""

    engine: Engine = "auto"
    """How clients are executed: serial, vectorised (all clients of a round in one batched call; for models made of
    matrix products), processes (one per core), ray (on a Ray cluster), or auto (picks by model and amount of work).
    Serial, processes and ray give bit-identical results, vectorised the same results up to rounding."""
    workers: int | None = None
    """Number of worker processes; None: one per core, or with device cuda one per visible GPU."""
    ray: str | None = None
    """Ray cluster: HOST:PORT of its head node, auto (the cluster that runs on this machine) or local (start one here).
    With engine ray, the clients of each round are trained there; None: $RAY_ADDRESS, else local. With other engines,
    compare, tune and reproduce train one run per core of the cluster; None: they do not use Ray."""
    gpus_per_worker: float = 0.0
    """Ray only: number of GPUs per worker or run, for example 0.5 with device cuda; 0 for CPUs."""
    device: str = "cpu"
    """Device to train on: cpu, cuda (the processes engine uses all visible GPUs), cuda:1, ..."""
    data_dir: str | None = None
    """Folder of the data sets; None: $FEDMIM_DATA, else ./data."""
    on_divergence: OnDivergence = "continue"
    """What to do with a run that has diverged (every upload of three rounds in a row was rejected): continue to the
    last round, or stop. In both cases tables and pages show it as diverged, and it can be resumed."""
    per_client: PerClient = "off"
    """Whether each evaluation also evaluates on every client's own data, its test data if the data set has some, else
    its training data: off, global (the global model), or personal (also the model after the client's own local steps,
    for which all clients train). Never changes the model."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            at_least("workers", self.workers, 1, most=MOST_WORKERS)
        _one_of("engine", self.engine, get_args(Engine))
        if not 0 <= self.gpus_per_worker <= MOST_WORKERS:
            raise UserError(f"gpus_per_worker: must be between 0 and {MOST_WORKERS}, got {self.gpus_per_worker}")
        _one_of("on_divergence", self.on_divergence, get_args(OnDivergence))
        _one_of("per_client", self.per_client, get_args(PerClient))

    def __repr__(self) -> str:
        return short_repr(self)


def check_replies(settings: Settings, clients: int) -> None:
    """Reject a `min_replies` that no round can reach."""
    if settings.min_replies > (active := settings.active(clients)):
        raise UserError(f"min_replies: must be at most {active}, the clients of a round, got {settings.min_replies}")


def at_least(name: str, value: object, least: int, most: int = LARGEST_COUNT) -> None:
    """Reject values that are not whole numbers in this range."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}: must be a whole number of at least {least}, got {value}")
    if value > most:
        raise UserError(f"{name}: must be a whole number of at most {most}")


def _positive(name: str, value: object, most: float = LARGEST) -> None:
    if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf):
        raise UserError(f"{name}: must be a finite number above 0, got {value}")
    if value > most:
        raise UserError(f"{name}: must be at most {most:g}, got {value:g}")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UserError(f"{name}: must be one of {', '.join(known)}, got {value!r}")
