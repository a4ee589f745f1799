"""The past global models that a method's broadcast is made of: who keeps them, and which of them a client is sent.

server      the server sends the broadcast; clients keep nothing
catch-up    clients keep models, and the server sends each client those that it lacks
broadcast   clients keep models, and x_t goes to all clients in every round, as in the paper of FedMIM
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from fedmim.algorithms import Algorithm, Vectors
from fedmim.simulation.settings import History


class PastModels:
    """Who keeps the past models in a run; for a method that needs none, `history` is "server"."""

    def __init__(
        self,
        algorithm: Algorithm,
        history: History,
        heard: Mapping[int, int] | None = None,
        models: Mapping[int, Tensor] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.history: History = history if algorithm.past_models else "server"
        self.heard = dict(heard or {})  # client -> the last round t in which it received x_t; for catch-up alone
        self.models = dict(models or {})  # round -> x_round, where the server really sends them

    @property
    def kept_by_clients(self) -> bool:
        """Whether clients keep models, and are sent models in place of the broadcast."""
        return self.history != "server"

    def needed(self, round: int) -> range:
        """The rounds whose models the broadcast of round t is made of: x_{t-J} ... x_t, none before x_0."""
        return range(max(0, round - self.algorithm.past_models), round + 1)

    def sent(self, client: int, round: int) -> range:
        """The rounds whose models a client is sent in round t: x_t, and with catch-up the others that it lacks.

        A client that received x_s then had all models that round s needs.
        """
        needed = self.needed(round)
        first = self.heard.get(client, -1) + 1 if self.history == "catch-up" else round
        return range(max(first, needed.start), needed.stop)

    def remember(self, round: int, params: Tensor) -> None:
        """Keep x_t, and of the models before it those that a client may be sent."""
        self.models[round] = params
        self.models = {each: self.models[each] for each in self.needed(round)}

    def hear(self, clients: Iterable[int], round: int) -> None:
        """These clients have received x_t."""
        if self.history == "catch-up":
            self.heard.update(dict.fromkeys(clients, round))

    def rebuild(self, models: Mapping[int, Tensor], round: int) -> Vectors:
        """The method's broadcast of round t from the models by their rounds."""
        rounds = range(round, round - self.algorithm.past_models - 1, -1)
        return self.algorithm.rebuild_broadcast([models[max(0, each)] for each in rounds])
