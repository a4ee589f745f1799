"""Record: the metrics of one round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedmim.display import short_repr

SHOWN_CLIENTS = 10  # in the repr


@dataclass(frozen=True, repr=False)
class Record:
    """One round of a run."""

    round: int  # 1, 2, ..., T
    test_accuracy: float | None  # the task's metric; None without evaluation or metric
    test_loss: float | None
    train_loss: float | None  # mean over accepted clients of the mean loss over their minibatches; None with dp_noise
    # Client drift: (1/S) sum_i ||x_i - mean||^2; None if all were rejected, with dp_noise, and for references.
    consistency: float | None
    lr: float
    clients: tuple[int, ...]  # ids of the clients that took part
    bytes_up: int
    bytes_down: int
    refused: int  # number of uploads rejected: not finite, or beyond max_distance or max_distance_ratio
    seconds: float
    failed: int = 0  # number of clients that took part and sent no usable reply: failures, dropouts, too late
    epsilon: float | None = None  # of (epsilon, dp_delta)-differential privacy after this round; None without dp_noise
    simulated_time: float | None = None  # of this round, in units of `Settings.deadline`; None if it is not simulated
    # The task's metric on each client's own data (see `Execution.per_client`); None: not evaluated.
    clients_mean: float | None = None  # mean over the clients
    clients_worst: float | None = None  # mean over the tenth of the clients with the lowest values
    clients_std: float | None = None  # standard deviation over the clients
    clients_q10: float | None = None  # quantiles over the clients: a tenth of them is below this one
    clients_q25: float | None = None
    clients_q50: float | None = None  # the median
    clients_q75: float | None = None
    clients_q90: float | None = None
    personal_mean: float | None = None  # mean over the clients, each after its own local steps

    def __repr__(self) -> str:
        return short_repr(self, _short)


def _short(value: Any) -> str:
    """Floats with four digits, and of many clients only the first."""
    if isinstance(value, tuple) and len(value) > SHOWN_CLIENTS:
        return f"({', '.join(map(str, value[:SHOWN_CLIENTS]))}, ... {len(value)} in all)"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)
