"""What a run will cost: its time, measured on a few local steps of its own engine, and its bytes on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedmim.algorithms import Algorithm
from fedmim.experiments.run import Run

if TYPE_CHECKING:
    from fedmim.simulation.loop import Rounds

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

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float, int]] = {}  # seconds of a round and of an evaluation; bytes

    def __call__(self, run: Run) -> Cost:
        """The cost of a run."""
        key = speed_key(run)
        if key not in self._known:
            self._known[key] = self._measure(run)
        round, evaluation, in_progress = self._known[key]
        rounds, every = run.config.settings.rounds, run.config.settings.eval_every
        seconds = rounds * round + -(-rounds // every) * evaluation
        return Cost(seconds, HEAD + LINE * rounds, in_progress)

    def _measure(self, run: Run) -> tuple[float, float, int]:
        from fedmim.simulation.engines import cores
        from fedmim.simulation.ledger import vector_bytes
        from fedmim.simulation.loop import rounds

        config, task, method = run.config, run.config.task(), run.algorithm
        whole = rounds(method, task, config.settings, config.execution)  # only to choose its engine
        clients, steps = config.settings.active(len(task.clients)), config.settings.steps(task.size(0))
        few = min(clients, 2 * (config.execution.workers or cores()))
        short = config.replace(rounds=9, eval_every=9, participation=few / len(task.clients), engine=whole.engine)

        def timed(**changes: int) -> Rounds:
            changed = short.replace(**changes)
            run = rounds(method, task, changed.settings, changed.execution)
            next(run)  # the first round starts workers and warms up
            return run

        times = [min(next(run).seconds for _ in range(3)) for run in (timed(local_steps=number) for number in STEPS)]
        step = max(0.0, (times[1] - times[0]) / (STEPS[1] - STEPS[0]))
        fixed = max(0.0, times[0] - STEPS[0] * step)
        evaluation = max(0.0, next(timed(local_steps=STEPS[0], eval_every=1)).seconds - times[0])
        state = whole.server.state
        vectors = vector_bytes({"params": state.params, **state.slots})
        kept_by_clients = len(task.clients) * len(run.algorithm.client_slots) * vector_bytes({"params": state.params})
        return clients / few * (fixed + steps * step), evaluation, vectors + kept_by_clients


def speed_key(run: Run) -> str:
    """What the time of a round depends on: the run, with all that takes no time at one value."""
    idle = {"seed": 0, "rounds": 1, "eval_every": 1, "lr": 1.0, "lr_decay": 1.0, "weight_decay": 0.0, "server_lr": None}
    shape = [len(value) if isinstance(value, tuple) else 0 for value in vars(run.algorithm).values()]
    alike = replace(run.replace(**idle, split="iid"), algorithm=Algorithm())
    return json.dumps([alike.identity(), shape])
