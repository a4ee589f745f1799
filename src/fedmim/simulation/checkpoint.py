"""Checkpoints: one safetensors file with all that a run needs to go on to the same bits.

The one before it is kept as well, and is what a run resumes from if the newest is damaged.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmim.algorithms import ServerState, Vectors
from fedmim.errors import UserError
from fedmim.files import read_metadata, read_tensors, sync_folder, write_tensors

CHECKPOINT_FILE = "checkpoint.safetensors"
PREVIOUS_FILE = "checkpoint.previous.safetensors"  # the one before it
CLIENTS_FOLDER = "clients"  # the folder of client states beside it

StatePlace = tuple[int, int]  # a client, and the round in which its state was written


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two rounds."""

    method: str  # repr of the algorithm
    settings: dict[str, Any]  # those that a run keeps to its end
    server: ServerState
    buffers: Tensor
    client_rounds: dict[int, int]  # client -> round in which its current state was written
    heard: dict[int, int]  # client -> the last round in which it received the global model
    models: dict[int, Tensor]  # round -> past global model, where the server keeps any for its clients

    def save(self, folder: Path, keep: bool = True) -> None:
        """Write the file, whole or not at all; the one that is there becomes the previous one, if it is to be kept."""
        tensors = {"params": self.server.params, "buffers": self.buffers}
        tensors |= {f"slots.{name}": vector for name, vector in self.server.slots.items()}
        tensors |= {f"slots.model.{round}": model for round, model in self.models.items()}
        facts = {
            "method": self.method,
            "settings": self.settings,
            "round": self.server.round,
            "client_rounds": list(self.client_rounds.items()),
            "heard": list(self.heard.items()),
        }
        previous = folder / PREVIOUS_FILE if keep else None
        write_tensors(folder / CHECKPOINT_FILE, tensors, {"facts": json.dumps(facts)}, previous)
        sync_folder(folder)

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> Checkpoint:
        """Read a file; one that cannot be read is an error that names it."""
        try:
            tensors, metadata = read_tensors(path, device)
            facts = json.loads(metadata.get("facts") or metadata["fedmim"])  # the second of version 0.1.0
            slots = named_after("slots.", tensors)
            models = {int(round): slots.pop(f"model.{round}") for round in named_after("model.", slots)}
            method, settings = upgraded(facts["method"], facts["settings"])
            return cls(
                method=method,
                settings=settings,
                server=ServerState(tensors["params"], slots, facts["round"]),
                buffers=tensors["buffers"],
                client_rounds=dict(facts["client_rounds"]),
                heard=dict(facts["heard"]),
                models=models,
            )
        except FileNotFoundError as error:
            raise DamageError(f"{path}: is missing") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamageError(f"{path}: not a readable checkpoint ({error})") from error


class DamageError(UserError):
    """A checkpoint, or a client's state that it names, is damaged or missing."""


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from; a kill may have left the previous one alone."""
    return (folder / CHECKPOINT_FILE).exists() or (folder / PREVIOUS_FILE).exists()


def named_places(path: Path) -> set[StatePlace]:
    """The client states that a checkpoint names; none where it cannot be read."""
    try:
        facts = json.loads(read_metadata(path)["facts"])
        return {(client, round) for client, round in facts["client_rounds"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def named_after(prefix: str, tensors: Vectors) -> Vectors:
    """Those of the tensors whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def upgraded(method: str, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Method and settings as they are written today; `history` was once a hyper-parameter of FedMIM, which had no
    `beta_unit` then, and `engine` was among the settings that a run keeps to its end."""
    settings = {name: value for name, value in settings.items() if name != "engine"}
    if "history" not in settings:
        found = re.search(r", history='([a-z-]+)'", method)
        method = method.replace(found[0], "") if found else method
        settings["history"] = found[1] if found else "server"
    if method.startswith("FedMIM(") and "beta_unit" not in method:
        method = f"{method.removesuffix(')')}, beta_unit='step')"
    return method, settings
