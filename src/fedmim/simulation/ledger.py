"""Communication cost in bytes, counted from the actual vectors."""

from __future__ import annotations

from collections.abc import Sequence

from fedmim.algorithms import Vectors
from fedmim.simulation.past_models import PastModels


def vector_bytes(vectors: Vectors) -> int:
    """The size of these vectors in bytes."""
    return sum(vector.numel() * vector.element_size() for vector in vectors.values())


def bytes_down(
    past: PastModels, round: int, clients: Sequence[int], population: int, broadcast: Vectors, buffers: int
) -> int:
    """Bytes sent to these of N clients in round t = 0, 1, ...; each message includes `buffers` bytes of buffers."""
    if not past.kept_by_clients:
        return len(clients) * (vector_bytes(broadcast) + buffers)
    model = vector_bytes({"params": broadcast["params"]})
    if past.history == "broadcast":
        return population * (model + buffers)
    return sum(len(past.sent(client, round)) for client in clients) * model + len(clients) * buffers
