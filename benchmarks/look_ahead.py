"""Look-ahead by the rule of `fedmim theory --measure`, against none.

For each setting: the largest response along a run with another seed, the look-ahead that follows from it
(`safe_ahead`), and the accuracy of FedAvg + leap with and without it, on the same splits, clients and minibatches.
CIFAR-10 is left out if `fedmim data` does not find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, stdev
from typing import Any

import fedmim
from fedmim.data.catalogue import known
from fedmim.theory import Inertia
from fedmim.theory.measurement import measure
from fedmim.theory.recommendation import safe_ahead

PROBE = 1000  # the seed of the run on which the response is measured
LAST = 10  # evaluations


@dataclass(frozen=True)
class Setting:
    """A task, and how it is trained."""

    data: str
    model: str
    alpha: tuple[float, ...]
    seeds: int
    settings: fedmim.Settings

    @property
    def name(self) -> str:
        """For the table."""
        chosen = self.settings
        steps = f"K = {chosen.local_steps}" if chosen.local_steps else f"E = {chosen.local_epochs:g}"
        return f"{self.data}, lr {chosen.lr:g}, {steps}, alpha {', '.join(map(str, self.alpha))}"

    def task(self, seed: int) -> fedmim.Task:
        """The task with this seed."""
        return _task(self.data, self.model, seed)


@cache
def _task(data: str, model: str, seed: int) -> fedmim.Task:
    return fedmim.Task.named(data, model=model, split="dirichlet:0.1", clients=100, seed=seed)


def table() -> str:
    """The table of all settings."""
    lines = [
        "FedAvg + leap, Dirichlet 0.1, 10 of 100 clients per round. Accuracy in %: mean of the last ten evaluations.",
        "",
        "| | largest response | look-ahead | without | with | difference per seed |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_row, _settings())])


def _settings() -> Iterator[Setting]:
    small = fedmim.Settings(rounds=150, participation=0.1, batch_size=10, local_epochs=5, lr_decay=1.0, eval_every=5)
    works: list[dict[str, Any]] = [{"lr": lr} for lr in (0.1, 0.3, 1.0, 2.0)]
    works += [{"lr": 1.0, "local_steps": 1}, {"lr": 1.0, "local_steps": 5}, {"lr": 0.3, "local_steps": 100}]
    for alpha in ((0.6, 0.3), (0.9,)):
        for work in works:
            yield Setting("mnist1d", "mlp2", alpha, 5, replace(small, **work))
    if all(each.problem is None for each in known(None) if each.name == "cifar10"):
        images = fedmim.Settings(rounds=150, participation=0.1, batch_size=50, local_epochs=1, eval_every=5)
        for lr in (0.1, 0.3):
            yield Setting("cifar10", "cnn", (0.6, 0.3), 3, replace(images, lr=lr))


def _row(setting: Setting) -> str:
    probe = replace(setting.settings, seed=PROBE)
    found = measure(setting.task(PROBE), probe, Inertia(setting.alpha), points=5, iterations=1)
    ahead = safe_ahead(found.response, setting.alpha)
    without = _accuracies(setting, 0.0)
    if ahead:
        after = _accuracies(setting, ahead)
        gains = [b - a for a, b in zip(without, after, strict=True)]
        better = sum(gain > 0 for gain in gains)
        shown = f"{_spread(after)} | {_spread(gains, '+')}, better with {better} of {len(gains)}"
    else:
        shown = "the same | 0"
    row = f"| {setting.name} | {found.response:.2f} | {ahead:g} | {_spread(without)} | {shown} |"
    print(row, flush=True)
    return row


def _accuracies(setting: Setting, ahead: float) -> list[float]:
    return [_accuracy(setting, ahead, seed) for seed in range(setting.seeds)]


def _accuracy(setting: Setting, ahead: float, seed: int) -> float:
    method = fedmim.Leap(fedmim.FedAvg(), alpha=setting.alpha, ahead=ahead)
    run = fedmim.simulate(method, setting.task(seed), replace(setting.settings, seed=seed), progress=False)
    last = [each.test_accuracy for each in run.history if each.test_accuracy is not None][-LAST:]
    return 100 * fmean(last)


def _spread(values: list[float], sign: str = "") -> str:
    return f"{fmean(values):{sign}.2f} ± {stdev(values):.2f}"
