"""Client state: the vectors that clients keep between rounds. Clients that never took part need no memory.

A new state never overwrites an older one. It is stored under (client, round), and the checkpoint records each client's
current round, so a run can be resumed after a kill at any moment. States beyond a memory budget are written to files.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TypeAlias

from fedmim.algorithms import Vectors
from fedmim.files import make_folder, read_tensors, remove, sync_folder, write_tensors
from fedmim.simulation.checkpoint import DamageError, StatePlace
from fedmim.simulation.ledger import vector_bytes

BUDGET = 2 << 30  # bytes of client state held in memory


class Elsewhere(ABC):
    """The vectors of a client that another machine holds."""

    @abstractmethod
    def load(self) -> Vectors:
        """Fetch the vectors."""


KeptVectors: TypeAlias = "Vectors | Elsewhere"


class ClientState:
    """Each client's vectors, by the round in which they were written."""

    def __init__(
        self,
        zeros: Vectors,
        folder: Path | None = None,
        places: dict[int, int] | None = None,
        budget: int = BUDGET,
        *,
        vectors_here: bool = True,
    ) -> None:
        self.zeros = zeros  # the state of a client that never took part
        self.places = dict(places or {})  # client -> round of its current state
        self.budget = budget
        self.vectors_here = vectors_here  # False: the clients store them, only the places are known here
        self._folder = folder
        self._temporary = folder is None
        self._held: dict[StatePlace, KeptVectors] = {}  # states in memory, oldest first
        self._bytes = 0
        self._written: set[StatePlace] = {(client, round) for client, round in self.places.items()}
        self._staged: dict[int, int] = {}
        self._strays = folder is not None  # whether a killed process may have left files behind

    @property
    def folder(self) -> Path:
        """Where states are written: in the run's folder, or a temporary one that is deleted with this object."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="fedmim-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def get(self, client: int) -> Vectors:
        """The vectors of a client; zeros before its first round."""
        return loaded(self.find(client))

    def find(self, client: int) -> KeptVectors:
        """The vectors of a client, or where they are."""
        if client not in self.places:
            return self.zeros
        place = client, self.places[client]
        return self._held[place] if place in self._held else self._read(place)

    def is_new(self, client: int) -> bool:
        """Whether a client has no vectors from an earlier round."""
        return client not in self.places

    def next(self, client: int) -> Vectors:
        """The vectors that a client will have after `commit`."""
        if client not in self._staged:
            return self.get(client)
        place = client, self._staged[client]
        return loaded(self._held[place] if place in self._held else self._read(place))

    def stays_new(self, client: int) -> bool:
        """Whether a client will have no vectors after `commit`."""
        return client not in self._staged and self.is_new(client)

    def put(self, client: int, round: int, vectors: KeptVectors) -> None:
        """Stage a client's new vectors; `commit` makes them current."""
        if not (vectors if self.vectors_here else self.zeros):
            return
        self._staged[client] = round
        if not self.vectors_here:
            return
        self._held[client, round] = own = copied(vectors)
        self._bytes += bytes_here(own)
        while self._bytes > self.budget:
            oldest = next(iter(self._held))
            if oldest not in self._written:
                self._write(oldest)
            self._forget(oldest)

    def commit(self) -> None:
        """End of a round: the staged vectors replace the old ones."""
        for client, round in self._staged.items():
            if client in self.places:
                self._forget((client, self.places[client]))
            self.places[client] = round
        self._staged = {}
        if self._temporary:
            self.sweep(set(self.places.items()))

    def rollback(self) -> None:
        """Discard the staged vectors of a round that did not finish."""
        for place in self._staged.items():
            self._forget(place)
            if place in self._written:
                remove(self._path(place))
                self._written.discard(place)
        self._staged = {}

    def flush(self) -> None:
        """Write all current states that are only in memory, before a checkpoint refers to them."""
        if not self.vectors_here:
            return
        if new := [place for place in self.places.items() if place not in self._written]:
            for place in new:
                self._write(place)
            sync_folder(self.folder)  # once for all files: a sync costs as much as writing a file
            sync_folder(self.folder.parent)

    def sweep(self, named: set[StatePlace]) -> None:
        """Remove the files of all states except these, which the checkpoints refer to."""
        gone = {self._path(place) for place in self._written - named}
        if self._strays:
            gone |= set(self.folder.glob("*.safetensors")) - {self._path(place) for place in named}
            self._strays = False
        for path in gone:
            remove(path)
        self._written &= named

    def verify(self) -> None:
        """Read every current state, one at a time, to find damage now and not rounds later."""
        if self.vectors_here:
            for place in self.places.items():
                self._read(place)

    def _forget(self, place: StatePlace) -> None:
        if (vectors := self._held.pop(place, None)) is not None:
            self._bytes -= bytes_here(vectors)

    def _path(self, place: StatePlace) -> Path:
        return self.folder / f"{place[0]:07d}-{place[1]:06d}.safetensors"

    def _write(self, place: StatePlace) -> None:
        make_folder(self.folder)
        write_tensors(self._path(place), loaded(self._held[place]), _stamp(place))
        self._written.add(place)

    def _read(self, place: StatePlace) -> Vectors:
        path = self._path(place)
        try:
            vectors, stamp = read_tensors(path, str(next(iter(self.zeros.values())).device))
        except (OSError, ValueError) as error:
            raise DamageError(f"{path}: the state of client {place[0]} cannot be read ({error})") from error
        shapes = {name: vector.shape for name, vector in vectors.items()}
        if stamp not in ({}, _stamp(place)) or shapes != {name: zeros.shape for name, zeros in self.zeros.items()}:
            raise DamageError(f"{path}: not the state of client {place[0]} after round {place[1] + 1}")
        return vectors


def loaded(vectors: KeptVectors) -> Vectors:
    """The vectors, fetched if another machine holds them."""
    return vectors.load() if isinstance(vectors, Elsewhere) else vectors


def copied(vectors: KeptVectors) -> KeptVectors:
    """Copies of the vectors: a view would keep a whole stack in memory. Those elsewhere are never overwritten."""
    if isinstance(vectors, Elsewhere):
        return vectors
    return {name: vector.clone() for name, vector in vectors.items()}


def bytes_here(vectors: KeptVectors) -> int:
    """The bytes that the vectors need in this process."""
    return 0 if isinstance(vectors, Elsewhere) else vector_bytes(vectors)


def _stamp(place: StatePlace) -> dict[str, str]:
    return {"client": str(place[0]), "round": str(place[1])}
