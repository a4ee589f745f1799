"""Accuracy on MNIST-1D when some clients send attacks, with each way to aggregate, and its cost without an attack.

The settings are those of `fedmim compare` without options, with 20 of 100 clients per round instead of 10: what counts
is the number of attackers in a round, and of 10 clients it is often half when it is a fifth of all.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from fedmim.experiments.config import defaults
from fedmim.experiments.config_file import DEMO, ConfigFile
from fedmim.experiments.run import Run

HELPERS = Path(__file__).parents[1] / "tests" / "helpers"  # the attacks, which tests use, too
METHODS = ("fedavg", "fedmim", "fedavg+leap")
RULES: dict[str, dict[str, Any]] = {
    "mean": {},
    "`max_distance_ratio=2`": {"max_distance_ratio": 2.0},
    "`trimmed-mean`, `trim=0.4`": {"aggregation": "trimmed-mean", "trim": 0.4},
    "`median`": {"aggregation": "median"},
    "`max_distance_ratio=2`, `trimmed-mean`, `trim=0.2`": {"max_distance_ratio": 2.0, "aggregation": "trimmed-mean"},
}
ATTACKS = ("sign flip", "scaled by 1e30", "noise", "zeros", "replay")
PARTS = (0.1, 0.2)  # attackers among the clients
NO_ATTACK = (None, 0.0)
PROCESSES = 2

Case = tuple[str, str, str | None, float]  # method, rule, attack, attackers


def accuracy(case: Case) -> float:
    """The mean test accuracy of the last ten rounds; that of guessing if the model is no longer finite."""
    import torch

    from fedmim import rounds

    sys.path.insert(0, str(HELPERS))
    from attackers import attack, choose_attackers

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # rounds without an accepted upload
    method, rule, name, part = case
    tuned = ConfigFile.read(str(DEMO)).tables.get(method, {})
    config = Run.make(method, {**defaults("mnist1d"), **tuned, "participation": 0.2, **RULES[rule]})
    run = rounds(config.algorithm, config.config.task(), config.config.settings, config.config.execution)
    if name is not None:
        attack(run, choose_attackers(100, part), name)
    return statistics.fmean(record.test_accuracy or 0.0 for record in list(run)[-10:])


def table() -> str:
    """One row per method and rule; one column per attack, with 10 and 20 % of the clients."""
    attacked = [NO_ATTACK, *product(ATTACKS, PARTS)]
    cases: list[Case] = [(*line, *how) for line in product(METHODS, RULES) for how in attacked]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        found = dict(zip(cases, pool.map(accuracy, cases), strict=True))
    lines = [f"| | no attack | {' | '.join(ATTACKS)} |", "|---" * (2 + len(ATTACKS)) + "|"]
    for method, rule in product(METHODS, RULES):
        cells = [f"{100 * found[method, rule, *NO_ATTACK]:.1f}"]
        cells += [", ".join(f"{100 * found[method, rule, name, part]:.1f}" for part in PARTS) for name in ATTACKS]
        lines.append(f"| {method}, {rule} | {' | '.join(cells)} |")
    return "Test accuracy in %, last ten rounds, with 10 % and 20 % attackers, seed 0.\n\n" + "\n".join(lines)
