"""Past global models that a client keeps (`Settings.history`), and the broadcast that it computes from them.

A client may not have the models that the server expects, because it joined late, missed a round or lost its disk. It
then reports this instead of training, and the server sends it all the models that it needs in the same round.
"""

from __future__ import annotations

from torch import Tensor

from fedmim.algorithms import Vectors
from fedmim.flower.messages import LackingError
from fedmim.flower.store import NodeStore
from fedmim.simulation.checkpoint import named_after
from fedmim.simulation.past_models import PastModels


def received(past: PastModels, vectors: Vectors, store: NodeStore, round: int) -> Vectors:
    """The vectors of the method's `broadcast`, from those received and the models kept here."""
    if not past.kept_by_clients:
        return vectors
    came = listen(past, vectors, store, round)
    rounds = past.needed(round)
    models = {**store.models(rounds), **came}
    if len(models) < len(rounds):
        raise LackingError
    return past.rebuild(models, round)


def listen(past: PastModels, vectors: Vectors, store: NodeStore, round: int) -> dict[int, Tensor]:
    """Store the received models and return them."""
    came = {int(name): params for name, params in named_after("model.", vectors).items()} | {round: vectors["params"]}
    store.put_models(came, oldest=past.needed(round).start)
    return came
