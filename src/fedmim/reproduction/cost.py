"""What a run will cost: its time, measured on a few local steps of its own engine, and its bytes on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import cast

from fedmim.experiments.archive import CIRCUMSTANCES
from fedmim.experiments.compare import TaskCache
from fedmim.experiments.config import plain
from fedmim.experiments.methods import Run
from fedmim.simulation.settings import Engine

STEPS = (1, 5)  # local steps in the rounds that are timed
LINE = 64  # bytes that a round takes in the archive, about
HEAD = 1000  # bytes of a run's configuration there


@dataclass(frozen=True)
class Cost:
    """Of one run."""

    seconds: float
    kept: int
    """Bytes that stay in the archive."""
    in_progress: int
    """Bytes of its checkpoint and client state, which go when it has ended."""


class CostMeter:
    """Measures runs; those that differ in nothing that takes time are measured once."""

    def __init__(self, tasks: TaskCache) -> None:
        self.tasks = tasks
        self._known: dict[str, tuple[float, float, int]] = {}  # seconds of a round and of an evaluation; bytes

    def __call__(self, run: Run) -> Cost:
        """The cost of a run."""
        key = speed_key(run)
        if key not in self._known:
            self._known[key] = self._measure(run)
        round, evaluation, in_progress = self._known[key]
        rounds, every = run.config.rounds, run.config.eval_every
        seconds = rounds * round + -(-rounds // every) * evaluation
        return Cost(seconds, HEAD + LINE * rounds, in_progress)

    def _measure(self, run: Run) -> tuple[float, float, int]:
        from fedmim.simulation.engines import cores
        from fedmim.simulation.ledger import size
        from fedmim.simulation.loop import rounds

        task, config = self.tasks(run.config), run.config
        whole = rounds(run.algorithm, task, config)  # nothing is trained yet, but its engine is chosen
        clients, steps = config.active(len(task.clients)), config.steps(task.size(0))
        few = min(clients, 2 * (config.workers or cores()))
        short = replace(config, rounds=9, eval_every=9, participation=few / len(task.clients))
        short = replace(short, engine=cast(Engine, whole.engine))
        times = []
        for number in STEPS:
            timed = rounds(run.algorithm, task, replace(short, local_steps=number))
            next(timed)  # the first round starts workers and warms up
            times.append(min(next(timed).seconds for _ in range(3)))
        step = max(0.0, (times[1] - times[0]) / (STEPS[1] - STEPS[0]))
        fixed = max(0.0, times[0] - STEPS[0] * step)
        evaluated = rounds(run.algorithm, task, replace(short, local_steps=STEPS[0], eval_every=1))
        next(evaluated)
        evaluation = max(0.0, next(evaluated).seconds - times[0])
        state = whole.state
        vectors = size({"params": state.params, **state.slots})
        kept_by_clients = len(task.clients) * len(run.algorithm.client_slots) * size({"params": state.params})
        return clients / few * (fixed + steps * step), evaluation, vectors + kept_by_clients


def speed_key(run: Run) -> str:
    """What the time of a round depends on."""
    aside = {*CIRCUMSTANCES, "seed", "rounds", "eval_every", "lr", "lr_decay", "weight_decay", "server_lr", "split"}
    settings = {name: value for name, value in plain(run.config).items() if name not in aside}
    shape = [len(value) if isinstance(value, tuple | list) else 0 for value in plain(run.algorithm).values()]
    return json.dumps([run.method, shape, settings], sort_keys=True)
