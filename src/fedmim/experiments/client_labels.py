"""How many samples of each class each client holds, kept in the run folder for reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fedmim.files import write_text

if TYPE_CHECKING:
    from fedmim.simulation.task import Task

CLIENT_LABELS = "clients.json"


def write_client_labels(task: Task, folder: Path) -> None:
    """Write the counts of a task with class labels; other tasks have none."""
    from fedmim.data import Clients

    clients = task.clients
    if not isinstance(clients, Clients) or clients.y.is_floating_point():
        return
    classes = int(clients.y.max()) + 1
    counts = [clients.y[part].bincount(minlength=classes).tolist() for part in clients.parts]
    sparse = [{str(label): count for label, count in enumerate(row) if count} for row in counts]
    write_text(folder / CLIENT_LABELS, json.dumps({"classes": classes, "clients": sparse}) + "\n")


def read_client_labels(folder: Path) -> list[list[int]] | None:
    """The counts, (clients, classes); None where the run has none."""
    try:
        values = json.loads((folder / CLIENT_LABELS).read_text(encoding="utf-8"))
        return [[row.get(str(label), 0) for label in range(values["classes"])] for row in values["clients"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # a picture less is no reason to stop
        return None
