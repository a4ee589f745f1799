"""Advice on the learning rate for a run that takes over the settings of FedAvg."""

from __future__ import annotations

import math

from fedmim.algorithms import Algorithm


def learning_rate_advice(algorithm: Algorithm, lr: float) -> str | None:
    """What inertia means for a learning rate that was tuned for FedAvg; None for a method without inertia."""
    alpha = getattr(algorithm, "alpha", ())
    if not algorithm.inertial or not isinstance(alpha, tuple) or not 0 < math.fsum(alpha) < 1:
        return None
    scale = 1 - math.fsum(alpha)
    return (
        f"lr: {algorithm.title} scales a client's own gradient step by A = 1 - sum(alpha) = {scale:.3g}: at lr {lr:g} "
        f"to {scale * lr:.3g}. If {lr:g} was tuned for FedAvg, try up to {lr / scale:.3g} (lr / A); if FedAvg's "
        "clients used momentum 0.9, their steps were ten times as large again"
    )
