"""Record: what is known of one round when it has ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """One round of a run."""

    round: int  # 1, 2, ..., T
    test_accuracy: float | None  # the task's metric; None in rounds without evaluation, or without a metric
    test_loss: float | None
    train_loss: float | None  # mean over the accepted clients of the mean over their minibatches
    consistency: float | None  # (1/S) sum_i ||x_i - mean||^2; None where every upload was rejected
    lr: float
    clients: tuple[int, ...]  # the ids that took part
    bytes_up: int
    bytes_down: int
    refused: int  # uploads that were rejected, because they were not finite
    seconds: float
