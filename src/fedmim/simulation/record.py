"""Record: the metrics of one round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
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
    personal_mean: float | None = None  # mean over the clients, each after its own local steps
