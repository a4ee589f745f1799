"""What SCAFFOLD's control variates know of the clients' gradients, and how these change in a round, on CIFAR-10.

The settings are those of `fedmim reproduce drift`: Dirichlet 0.1, 10 % of the clients per round, one epoch, learning
rate 0.1.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

import fedmim
from fedmim.algorithms import Algorithm, Local, Round, ServerState, Vectors

FIRST, ROUNDS = 40, 80  # rounds before recording starts, and in all
SETTINGS = fedmim.Settings(rounds=ROUNDS, participation=0.1, local_epochs=1, batch_size=50, lr=0.1, eval_every=ROUNDS)


@dataclass
class Seen:
    """What was recorded."""

    recording: bool = False
    squares: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))  # ||g||^2 by step
    products: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # of old and new c_i - c


def recorder(base: type[Algorithm], seen: Seen) -> Algorithm:
    """The method, which also records its gradients and control variates."""

    class Recorder(base):  # type: ignore[misc, valid-type]
        def gradient(self, w: Tensor, local: Local) -> Tensor:
            g = super().gradient(w, local)
            if seen.recording:
                seen.squares[local.k].append(float(g.square().sum()))
            return g

        def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
            upload, slots = super().finish(w, local)
            if seen.recording and slots and not local.first:
                old, new = (each["control"] - local.down["control"] for each in (local.slots, slots))
                for name, product in (("old", old @ old), ("new", new @ new), ("both", old @ new)):
                    seen.products[name] += float(product)
            return upload, slots

        def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
            seen.recording = state.round + 1 >= FIRST
            return super().update(state, mean, round)

    return Recorder()


def table() -> str:
    """The mean squared gradient of each step, and how far the control variates agree with the present gradients."""
    task: Any = fedmim.Task.named("cifar10", model="cnn", split="dirichlet:0.1", clients=100)
    lines = []
    for base in (fedmim.FedAvg, fedmim.Scaffold):
        seen = Seen()
        history = list(fedmim.rounds(recorder(base, seen), task, SETTINGS, fedmim.Execution("serial")))
        drift = [record.consistency or 0.0 for record in history[FIRST:]]
        squares = [sum(each) / len(each) for _, each in sorted(seen.squares.items())]
        if not lines:
            lines += [
                f"CIFAR-10, the network cnn, seed 0, mean over rounds {FIRST + 1} to {ROUNDS}. Columns 1 to "
                f"{len(squares)}: mean squared gradient of a minibatch at that local step.",
                "",
                f"| | {' | '.join(str(k + 1) for k in range(len(squares)))} | client drift |",
                "|---|" + "---|" * (len(squares) + 1),
            ]
        shown = " | ".join(f"{each:.1f}" for each in squares)
        lines.append(f"| {base.title} | {shown} | {sum(drift) / len(drift):.2f} |")
    old, new, both = (seen.products[name] for name in ("old", "new", "both"))
    lines += [
        "",
        "SCAFFOLD's control variate and the client's mean gradient in this round, both minus the server's control "
        f"variate: correlation {both / (old * new) ** 0.5:.2f}. The correction leaves "
        f"{(old + new - 2 * both) / new:.0%} of the spread of the gradients over clients.",
    ]
    return "\n".join(lines)
