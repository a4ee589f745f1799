"""FedMIM's history: who keeps the past global models. The trajectory is the same, the bytes are not.

server      the server sends the two sums over past increments; clients keep nothing
catch-up    clients keep models, and the server sends those that a client lacks
broadcast   clients keep models, and x_t goes to all of them in every round, as in the paper

The server may be wrong about what a client holds: it joined late, missed a round, or lost its disk. Then the client
says so in place of training, and is sent all that it needs in the same round.
"""

from __future__ import annotations

from torch import Tensor

from fedmim.algorithms import Algorithm, FedMIM, ServerState, Vectors
from fedmim.flower.messages import prefixed, without_prefix
from fedmim.flower.store import NodeStore


class LackingError(Exception):
    """The client does not hold the past models that the server thinks it does."""


def kept_by_clients(algorithm: Algorithm) -> bool:
    """Whether clients keep past global models."""
    return isinstance(algorithm, FedMIM) and algorithm.history != "server"


def needed(algorithm: Algorithm, round: int) -> range:
    """The rounds whose models make round t: x_{t-J} ... x_t, of which those before x_0 do not exist."""
    assert isinstance(algorithm, FedMIM)
    return range(max(0, round - algorithm.memory), round + 1)


class ServerHistory:
    """The server's side: the past models, and when each client last heard of one."""

    def __init__(self, algorithm: Algorithm, models: dict[int, Tensor], heard: dict[int, int]) -> None:
        self.algorithm = algorithm
        self.models = models  # round -> x_round, as far back as a client may need
        self.heard = heard  # client -> the last round in which it took in x_t

    def begin(self, state: ServerState) -> None:
        """A round begins at this state."""
        self._round, self._broadcast = state.round, {}
        if kept_by_clients(self.algorithm):
            self.models[state.round] = state.params
            self.models = {round: self.models[round] for round in needed(self.algorithm, state.round)}
        else:
            self._broadcast = self.algorithm.broadcast(state)

    def down(self, client: int, complete: bool) -> Vectors:
        """The round's vectors for a client; with `complete` all that it can need."""
        if not kept_by_clients(self.algorithm):
            return self._broadcast
        assert isinstance(self.algorithm, FedMIM)
        first = self._round if self.algorithm.history == "broadcast" else self.heard.get(client, -1) + 1
        rounds = self.models if complete else [round for round in self.models if round >= first]
        return prefixed("model", {str(round): self.models[round] for round in rounds})

    def hear(self, client: int, round: int) -> None:
        """The client has taken in x_t."""
        if kept_by_clients(self.algorithm):
            self.heard[client] = round


def received(algorithm: Algorithm, vectors: Vectors, store: NodeStore, round: int) -> Vectors:
    """The client's side: what the method's `broadcast` would have sent, from what came and what is kept here."""
    if not kept_by_clients(algorithm):
        return vectors
    assert isinstance(algorithm, FedMIM)
    came = listen(algorithm, vectors, store, round)
    rounds = needed(algorithm, round)
    models = {**store.models(rounds), **came}
    if len(models) < len(rounds):
        raise LackingError
    x = models[round]
    slots = {
        f"increment_{j}": models[round - j] - models[round - j - 1] if j < round else x.new_zeros(x.shape)
        for j in range(algorithm.memory)
    }
    return algorithm.broadcast(ServerState(x, slots, round))


def listen(algorithm: Algorithm, vectors: Vectors, store: NodeStore, round: int) -> dict[int, Tensor]:
    """Keep the models that came, and give them back."""
    came = {int(name): params for name, params in without_prefix("model", vectors).items()}
    store.put_models(came, oldest=needed(algorithm, round).start)
    return came
