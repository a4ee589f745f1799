"""Past global models that a client keeps (`Settings.history`), and the broadcast that it makes of them.

The server may be wrong about what a client has: it joined late, missed a round, or lost its disk. Then the client
says so in place of training, and is sent all models that it needs in the same round.
"""

from __future__ import annotations

from torch import Tensor

from fedmim.algorithms import Vectors
from fedmim.flower.messages import LackingError
from fedmim.flower.store import NodeStore
from fedmim.simulation.checkpoint import named_after
from fedmim.simulation.past_models import PastModels


def received(past: PastModels, vectors: Vectors, store: NodeStore, round: int) -> Vectors:
    """What the method's `broadcast` gives, from what came and what is kept here."""
    if not past.kept_by_clients:
        return vectors
    came = listen(past, vectors, store, round)
    rounds = past.needed(round)
    models = {**store.models(rounds), **came}
    if len(models) < len(rounds):
        raise LackingError
    return past.rebuild(models, round)


def listen(past: PastModels, vectors: Vectors, store: NodeStore, round: int) -> dict[int, Tensor]:
    """Keep the models that came, and give them back."""
    came = {int(name): params for name, params in named_after("model.", vectors).items()}
    store.put_models(came, oldest=past.needed(round).start)
    return came
