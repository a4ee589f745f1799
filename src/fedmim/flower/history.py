"""Past global models that clients keep (`Settings.history`): what each is sent, and what it makes of them.

The server may be wrong about what a client has: it joined late, missed a round, or lost its disk. Then the client
says so in place of training, and is sent all models that it needs in the same round.
"""

from __future__ import annotations

from torch import Tensor

from fedmim.algorithms import ServerState, Vectors
from fedmim.flower.messages import prefixed, without_prefix
from fedmim.flower.store import NodeStore
from fedmim.simulation.past_models import PastModels


class LackingError(Exception):
    """The client does not have the past models that the server takes it to have."""


class ServerHistory:
    """The server's side: the past models, and when each client last heard of one."""

    def __init__(self, past: PastModels, models: dict[int, Tensor]) -> None:
        self.past = past
        self.models = models  # round -> x_round, as far back as a client may need

    def begin(self, state: ServerState) -> None:
        """A round begins at this state."""
        self._round, self._broadcast = state.round, {}
        if self.past.kept_by_clients:
            self.models[state.round] = state.params
            self.models = {round: self.models[round] for round in self.past.needed(state.round)}
        else:
            self._broadcast = self.past.algorithm.broadcast(state)

    def down(self, client: int, complete: bool) -> Vectors:
        """The round's vectors for a client; with `complete` all that it can need."""
        if not self.past.kept_by_clients:
            return self._broadcast
        rounds = self.models if complete else self.past.sent(client, self._round)
        return prefixed("model", {str(round): self.models[round] for round in rounds})


def received(past: PastModels, vectors: Vectors, store: NodeStore, round: int) -> Vectors:
    """The client's side: what the method's `broadcast` would have sent, from what came and what is kept here."""
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
    came = {int(name): params for name, params in without_prefix("model", vectors).items()}
    store.put_models(came, oldest=past.needed(round).start)
    return came
