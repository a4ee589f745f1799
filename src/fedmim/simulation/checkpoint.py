"""Checkpoints: one safetensors file with everything that a run needs to resume with bit-identical results.

The previous checkpoint is kept too. A run resumes from it if the newest is damaged.
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
from fedmim.simulation.settings import Settings

CHECKPOINT_FILE = "checkpoint.safetensors"
PREVIOUS_FILE = "checkpoint.previous.safetensors"  # the previous one
CLIENTS_FOLDER = "clients"  # folder of client states, next to the checkpoint

StatePlace = tuple[int, int]  # client and round in which its state was written


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two rounds."""

    method: str  # repr of the algorithm
    settings: dict[str, Any]  # those that must not change during a run
    server: ServerState
    buffers: Tensor
    client_rounds: dict[int, int]  # client -> round in which its current state was written
    heard: dict[int, int]  # client -> the last round in which it received the global model
    models: dict[int, Tensor]  # round -> past global model, if the server keeps them for its clients
    clip: float | None = None  # clip norm of differential privacy

    def save(self, folder: Path, keep: bool = True) -> None:
        """Write the file atomically. With `keep`, the existing checkpoint becomes the previous one."""
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
        if self.clip is not None:
            facts["clip"] = self.clip
        previous = folder / PREVIOUS_FILE if keep else None
        write_tensors(folder / CHECKPOINT_FILE, tensors, {"facts": json.dumps(facts)}, previous)
        sync_folder(folder)

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> Checkpoint:
        """Read a file; raise DamageError if it is missing or cannot be read."""
        try:
            tensors, metadata = read_tensors(path, device)
            facts = json.loads(metadata.get("facts") or metadata["fedmim"])  # version 0.1.0 used the second name
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
                clip=facts.get("clip"),
            )
        except FileNotFoundError as error:
            raise DamageError(f"{path}: the file is missing") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamageError(f"{path}: cannot be read as a checkpoint ({error})") from error


class DamageError(UserError):
    """A checkpoint, or a client state that it refers to, is damaged or missing."""


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from; after a kill there may be only the previous one."""
    return (folder / CHECKPOINT_FILE).exists() or (folder / PREVIOUS_FILE).exists()


def named_places(path: Path) -> set[StatePlace]:
    """The client states that a checkpoint refers to; empty if it cannot be read."""
    try:
        facts = json.loads(read_metadata(path)["facts"])
        return {(client, round) for client, round in facts["client_rounds"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def named_after(prefix: str, tensors: Vectors) -> Vectors:
    """The tensors whose names start with the prefix; the prefix is removed from the names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def upgraded(method: str, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Convert method and settings of older checkpoints to today's form.

    Earlier, `history` was a hyper-parameter of FedMIM, FedMIM had no `beta_unit`, and checkpoints stored `engine`.
    Settings that were added later have their defaults.
    """
    settings = {name: value for name, value in settings.items() if name != "engine"}
    if "history" not in settings:
        found = re.search(r", history='([a-z-]+)'", method)
        method = method.replace(found[0], "") if found else method
        settings["history"] = found[1] if found else "server"
    if method.startswith("FedMIM(") and "beta_unit" not in method:
        method = f"{method.removesuffix(')')}, beta_unit='step')"
    return method, Settings().fixed() | settings
