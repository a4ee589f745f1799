"""Record: the metrics of one round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedmim.display import short_repr

SHOWN_CLIENTS = 10  # in the repr


@dataclass(frozen=True, repr=False)
class Record:
    """One round of a run."""

    round: int
    """The number of the round: 1, 2, ..., T."""
    test_accuracy: float | None
    """The task's metric; None without evaluation or metric."""
    test_loss: float | None
    """Loss on the test data; None without evaluation."""
    train_loss: float | None
    """Mean over accepted clients of the mean loss over their minibatches; None with dp_noise."""
    consistency: float | None
    """Client drift: (1/S) sum_i ||x_i - mean||^2; None if all were rejected, with dp_noise, and for references."""
    lr: float
    """The local learning rate of the round."""
    clients: tuple[int, ...]
    """Ids of the clients that took part."""
    bytes_up: int
    """Bytes that the clients of the round sent."""
    bytes_down: int
    """Bytes that the server sent in the round."""
    refused: int
    """Number of uploads rejected: not finite, or beyond max_distance or max_distance_ratio."""
    seconds: float
    """Duration of the round."""
    failed: int = 0
    """Number of clients that took part and sent no usable reply: failures, dropouts, too late."""
    epsilon: float | None = None
    """The epsilon of (epsilon, dp_delta)-differential privacy after this round; None without dp_noise."""
    simulated_time: float | None = None
    """Simulated time of this round, in units of `Settings.deadline`; None if it is not simulated."""
    steps_mean: float | None = None
    """Mean number of local steps over the clients that replied; None if all clients do the usual work and reply."""
    clients_mean: float | None = None
    """Mean over the clients of the task's metric on their own data (`Execution.per_client`); None: not evaluated."""
    clients_worst: float | None = None
    """Mean of the same over the tenth of the clients with the lowest values."""
    clients_std: float | None = None
    """Standard deviation of the same over the clients."""
    clients_q10: float | None = None
    """A quantile over the clients: a tenth of them is below it."""
    clients_q25: float | None = None
    """A quarter of the clients is below it."""
    clients_q50: float | None = None
    """The median."""
    clients_q75: float | None = None
    """Three quarters of the clients are below it."""
    clients_q90: float | None = None
    """Nine tenths of the clients are below it."""
    personal_mean: float | None = None
    """Mean over the clients, each after its own local steps."""

    def __repr__(self) -> str:
        return short_repr(self, _short)


def _short(value: Any) -> str:
    """Floats with four digits, and of many clients only the first."""
    if isinstance(value, tuple) and len(value) > SHOWN_CLIENTS:
        return f"({', '.join(map(str, value[:SHOWN_CLIENTS]))}, ... {len(value)} in all)"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)
