"""The past global models behind a method's broadcast: who keeps them, and which of them a client receives.

server      the server sends the broadcast; clients keep nothing
catch-up    clients keep models; the server sends each client the models it is missing
broadcast   clients keep models; the server sends x_t to all clients in every round, as in the FedMIM paper
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from fedmim.algorithms import Algorithm, Vectors
from fedmim.simulation.settings import History


class PastModels:
    """Who keeps the past models in a run; `history` is "server" for a method that needs none."""

    def __init__(
        self,
        algorithm: Algorithm,
        history: History,
        heard: Mapping[int, int] | None = None,
        models: Mapping[int, Tensor] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.history: History = history if algorithm.past_models else "server"
        self.heard = dict(heard or {})  # client -> the last round t in which it received x_t; only for catch-up
        self.models = dict(models or {})  # round -> x_round, if the server sends them

    @property
    def kept_by_clients(self) -> bool:
        """Whether clients keep models and receive models instead of the broadcast."""
        return self.history != "server"

    def needed(self, round: int) -> range:
        """The rounds of the models that the broadcast of round t depends on: x_{t-J} ... x_t, none before x_0."""
        return range(max(0, round - self.algorithm.past_models), round + 1)

    def sent(self, client: int, round: int) -> range:
        """The rounds of the models to send to a client in round t: x_t, and with catch-up those it is missing.

        A client that received x_s has all models that round s needs.
        """
        needed = self.needed(round)
        first = self.heard.get(client, -1) + 1 if self.history == "catch-up" else round
        return range(max(first, needed.start), needed.stop)

    def remember(self, round: int, params: Tensor) -> None:
        """Keep x_t and the earlier models that may still be sent to a client."""
        self.models[round] = params
        self.models = {each: self.models[each] for each in self.needed(round)}

    def hear(self, clients: Iterable[int], round: int) -> None:
        """Record that these clients have received x_t."""
        if self.history == "catch-up":
            self.heard.update(dict.fromkeys(clients, round))

    def rebuild(self, models: Mapping[int, Tensor], round: int) -> Vectors:
        """The method's broadcast of round t, computed from the models of the last rounds."""
        rounds = range(round, round - self.algorithm.past_models - 1, -1)
        return self.algorithm.rebuild_broadcast([models[max(0, each)] for each in rounds])
