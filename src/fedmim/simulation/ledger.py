"""The ledger: bytes that cross the wire, from the actual vectors."""

from __future__ import annotations

from collections.abc import Sequence

from fedmim.algorithms import Algorithm, FedMIM, Vectors


def size(vectors: Vectors) -> int:
    """The bytes of these vectors."""
    return sum(vector.numel() * vector.element_size() for vector in vectors.values())


class Ledger:
    """Bytes down for each round; it remembers when each client last heard of the model, for FedMIM's catch-up."""

    def __init__(self, algorithm: Algorithm, population: int, heard: dict[int, int] | None = None) -> None:
        self.algorithm = algorithm
        self.population = population  # N
        self.heard = dict(heard or {})  # client -> the last round it took part in; kept for catch-up alone

    def down(self, round: int, clients: Sequence[int], broadcast: Vectors, buffers: int) -> int:
        """Bytes sent down in round t = 0, 1, ... to these clients; `buffers` bytes of buffers go with the model."""
        method = self.algorithm
        if not isinstance(method, FedMIM) or method.history == "server":
            return len(clients) * (size(broadcast) + buffers)
        model = size({"params": broadcast["params"]})
        if method.history == "broadcast":
            return self.population * (model + buffers)
        # A client that took part in round s holds x_s and the J models before it. Now it needs x_t .. x_{t-J}, of
        # which those before x_0 do not exist: it lacks what came after s, or all.
        needed = min(method.memory, round) + 1
        models = sum(min(round - self.heard.get(client, -1), needed) for client in clients)
        return models * model + len(clients) * buffers

    def commit(self, round: int, clients: Sequence[int]) -> None:
        """End of a round: these clients have heard of x_t."""
        if isinstance(self.algorithm, FedMIM) and self.algorithm.history == "catch-up":
            self.heard.update(dict.fromkeys(clients, round))
