"""How many samples of each class each client holds, kept in the run folder for reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fedmim.files import write_text

if TYPE_CHECKING:
    from fedmim.simulation.task import Task

CLIENT_LABELS = "clients.json"
MOST_COUNTS = 10_000_000  # clients times classes
MOST_SAMPLES = 1 << 40  # so that sums are exact


def write_client_labels(task: Task, folder: Path) -> None:
    """Write the counts of a task with class labels; other tasks have none."""
    from fedmim.data import Clients

    clients = task.clients
    if not isinstance(clients, Clients) or clients.y.is_floating_point():
        return
    classes = int(clients.y.max()) + 1
    counts = [clients.y[part].unique(return_counts=True) for part in clients.parts]
    sparse = [dict(zip(map(str, labels.tolist()), count.tolist(), strict=True)) for labels, count in counts]
    write_text(folder / CLIENT_LABELS, json.dumps({"classes": classes, "clients": sparse}) + "\n")


def read_client_labels(folder: Path) -> list[list[int]] | None:
    """The counts, (clients, classes); None where the run has none, or more than a picture can show."""
    try:
        values = json.loads((folder / CLIENT_LABELS).read_text(encoding="utf-8"))
        classes, clients = values["classes"], values["clients"]
        if type(classes) is not int or not 0 < classes * len(clients) <= MOST_COUNTS:
            return None
        counts = [[row.get(str(label), 0) for label in range(classes)] for row in clients]
        whole = all(type(count) is int and 0 <= count < MOST_SAMPLES for row in counts for count in row)
        return counts if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # a picture less is no reason to stop
