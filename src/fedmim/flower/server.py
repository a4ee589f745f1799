"""What the server carries from round to round, and its checkpoints."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, ServerState, Vectors
from fedmim.errors import UserError
from fedmim.flower.history import ServerHistory
from fedmim.flower.messages import prefixed, without_prefix
from fedmim.models import FlatModel
from fedmim.simulation.checkpoint import CLIENTS, Checkpoint
from fedmim.simulation.client_state import ClientState
from fedmim.simulation.past_models import PastModels
from fedmim.simulation.settings import History


@dataclass
class Server:
    """The state of a run between two rounds."""

    run: str  # names this run and no other, also when it goes on after a stop
    state: ServerState
    buffers: Tensor
    history: ServerHistory
    clients: ClientState  # which round's vectors are each client's, and the vectors where they are kept here
    keeps_vectors: bool  # whether the clients' own vectors are kept here

    @classmethod
    def begin(
        cls, algorithm: Algorithm, flat: FlatModel, folder: Path | None, history: History, keeps_vectors: bool
    ) -> Server:
        """A new run."""
        state = algorithm.init(flat.params.clone())
        clients = ClientState(zeros(algorithm, flat.params), folder / CLIENTS if folder else None)
        past = ServerHistory(PastModels(algorithm, history), {})
        return cls(uuid.uuid4().hex, state, flat.buffers, past, clients, keeps_vectors)

    def keep(self, client: int, slots: Vectors) -> None:
        """From the end of this round on, the client's vectors are those that it made in it."""
        if self.keeps_vectors:
            self.clients.put(client, self.state.round, slots)
        elif self.clients.zeros:
            self.clients.places[client] = self.state.round

    def save(self, folder: Path, algorithm: Algorithm, settings: dict[str, Any]) -> None:
        """Write a checkpoint whole; with the clients' vectors, where they are kept here."""
        folder.mkdir(parents=True, exist_ok=True)
        past = prefixed("model", {str(round): params for round, params in self.history.models.items()})
        state = replace(self.state, slots={**self.state.slots, **past})
        if self.keeps_vectors:
            self.clients.flush()
        facts = {**settings, "run": self.run}
        places, heard = self.clients.places, self.history.past.heard
        Checkpoint(repr(algorithm), facts, state, self.buffers, places, heard).save(folder)
        if self.keeps_vectors:
            self.clients.sweep()

    @classmethod
    def restore(
        cls, folder: Path, algorithm: Algorithm, settings: dict[str, Any], flat: FlatModel, keeps_vectors: bool
    ) -> Server:
        """Go on from a checkpoint of the same method and settings."""
        try:
            saved = Checkpoint.load(folder)
        except FileNotFoundError:
            raise UserError(f"{folder}: there is no checkpoint to go on from") from None
        params, ours = saved.server.params, flat.params
        if saved.method != repr(algorithm) or (params.shape, params.dtype) != (ours.shape, ours.dtype):
            raise UserError(f"{folder}: the checkpoint there is of another run, {saved.method}")
        if changed := [name for name, value in settings.items() if saved.settings.get(name) != value]:
            raise UserError(f"{folder}: the run there has another {', '.join(changed)}")
        slots = saved.server.slots
        past = {int(round): params for round, params in without_prefix("model", slots).items()}
        state = replace(saved.server, slots={n: v for n, v in slots.items() if not n.startswith("model.")})
        clients = ClientState(zeros(algorithm, params), folder / CLIENTS, saved.client_rounds)
        clients.remove_strays()
        history = ServerHistory(PastModels(algorithm, settings["history"], saved.heard), past)
        return cls(saved.settings["run"], state, saved.buffers, history, clients, keeps_vectors)


def zeros(algorithm: Algorithm, like: Tensor) -> Vectors:
    """The vectors of a client that never took part."""
    return {name: torch.zeros_like(like) for name in algorithm.client_slots}
