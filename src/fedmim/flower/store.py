"""The files that a client keeps on its own disk between rounds: its vectors, and past global models.

    state-dir / run / client / slots-T.safetensors, model-T.safetensors

Each file is written atomically. Its path contains run, client and round, so it never overwrites a different file. The
server says which round's vectors are current, so the vectors of a late or rejected reply are not used again. The folder
has a stamp (`stamped`), without which nothing is removed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from fedmim.algorithms import Vectors
from fedmim.errors import UserError
from fedmim.files import read_tensors, write_tensors
from fedmim.flower.stamped import is_stamped, make_stamped, remove_stamped, stamped_folders

FORGOTTEN = 30 * 24 * 3600  # seconds after which the files of a run that did not end are removed


class NodeStore:
    """The files of one client in one run."""

    def __init__(self, root: Path, run: str, client: int) -> None:
        self.root, self.run, self.client = root, run, client
        self.folder = root / run / str(client)

    def slots(self, zeros: Vectors, round: int, state_round: int) -> Vectors:
        """The client's vectors for a round: those of `state_round`, zeros if it is -1."""
        if state_round < 0 or not zeros:
            return zeros
        path = self._path("slots", state_round)
        vectors = self._read(path)
        if vectors is None or vectors.keys() != zeros.keys():
            raise UserError(
                f"{path}: the vectors of client {self.client} from round {state_round + 1} are lost; restore the file, "
                'or use FlowerStrategy(client_state="server"), which keeps them on the server'
            )
        # Keep the previous ones too: the server may have to resume from its previous checkpoint.
        before = max((other for other in self._rounds("slots") if other < state_round), default=-1)
        self._remove("slots", lambda other: other < round and other not in (state_round, before))
        return {name: vector.to(zeros[name].device) for name, vector in vectors.items()}

    def put_slots(self, round: int, vectors: Vectors) -> None:
        """Store the client's new vectors. They become current when the server says so."""
        if vectors:
            self._write("slots", round, vectors)

    def models(self, rounds: range) -> dict[int, Tensor]:
        """The global models of these rounds that are stored here."""
        found = {round: self._read(self._path("model", round)) for round in rounds}
        return {round: vectors["params"] for round, vectors in found.items() if vectors and "params" in vectors}

    def put_models(self, models: dict[int, Tensor], oldest: int) -> None:
        """Store global models, and remove those before `oldest`."""
        for round, params in models.items():
            self._write("model", round, {"params": params})
        self._remove("model", lambda round: round < oldest)

    def forget(self) -> None:
        """Remove all files of this client in this run."""
        remove_stamped(self.root, self.run, self.client)

    def _path(self, kind: str, round: int) -> Path:
        return self.folder / f"{kind}-{round:06d}.safetensors"

    def _rounds(self, kind: str) -> list[int]:
        names = (path.name for path in self.folder.glob(f"{kind}-*.safetensors"))
        return [int(found[1]) for name in names if (found := re.fullmatch(rf"{kind}-(\d+)\.safetensors", name))]

    def _remove(self, kind: str, obsolete: Callable[[int], bool]) -> None:
        if is_stamped(self.root, self.run, self.client):
            for round in filter(obsolete, self._rounds(kind)):
                self._path(kind, round).unlink(missing_ok=True)

    def _read(self, path: Path) -> Vectors | None:
        """The file's vectors; None if it is missing or damaged."""
        try:
            vectors, _ = read_tensors(path)
        except (OSError, ValueError):
            return None
        return vectors

    def _write(self, kind: str, round: int, vectors: Vectors) -> None:
        if make_stamped(self.root, self.run, self.client):
            self._remove_forgotten()
        stamp = {"run": self.run, "client": str(self.client), "round": str(round)}
        write_tensors(self._path(kind, round), vectors, stamp)

    def _remove_forgotten(self) -> None:
        """Remove this client's files of old runs that stopped without telling the clients."""
        for run, folder in stamped_folders(self.root, self.client):
            with suppress(FileNotFoundError):  # another process has removed it
                if run != self.run and time.time() - folder.stat().st_mtime > FORGOTTEN:
                    remove_stamped(self.root, run, self.client)
