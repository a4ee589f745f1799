"""The number of samples of each class that each client holds, saved in the run folder for reports."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmim.errors import UserError
from fedmim.files import write_text

if TYPE_CHECKING:
    import numpy as np

    from fedmim.simulation.task import Task

CLIENT_LABELS = "clients.json"
CELLS = 10**8  # limit on clients x classes when reading


def write_client_labels(task: Task, folder: Path) -> None:
    """Write the counts of a task with class labels. For other tasks, do nothing."""
    import numpy as np
    from torch import Tensor

    from fedmim.data import Clients

    clients = task.clients
    if not isinstance(clients, Clients) or not isinstance(clients.y, Tensor) or clients.y.is_floating_point():
        return
    classes = int(clients.y.max()) + 1
    labels = clients.y.cpu().numpy()
    samples = np.concatenate([part.cpu().numpy() for part in clients.parts])
    owners = np.repeat(np.arange(len(clients)), clients.sizes)
    held, counts = np.unique(owners * classes + labels[samples], return_counts=True)
    sparse: list[dict[str, int]] = [{} for _ in range(len(clients))]
    for place, count in zip(held.tolist(), counts.tolist(), strict=True):
        sparse[place // classes][str(place % classes)] = count
    write_text(folder / CLIENT_LABELS, json.dumps({"classes": classes, "clients": sparse}) + "\n")


def read_client_labels(folder: Path) -> np.ndarray | None:
    """The counts as an array (clients, classes); None if the run has none."""
    path = folder / CLIENT_LABELS
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would block
            raise ValueError("it is not a regular file")
        return _table(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: is damaged ({error}); remove it") from error


def _table(values: dict[str, Any]) -> np.ndarray:
    import numpy as np

    classes, rows = values["classes"], values["clients"]
    if type(classes) is not int or type(rows) is not list or not 0 < classes * len(rows) <= CELLS:
        raise ValueError("it has no table of clients and classes of a valid size")
    table = np.zeros((len(rows), classes), dtype=np.int64)
    known = {str(label): label for label in range(classes)}
    for client, row in enumerate(rows):
        for label, count in row.items():
            if type(count) is not int or not 0 <= count < 2**31:
                raise ValueError(f"client {client} cannot have {str(count)[:40]} samples of a class")
            table[client, known[label]] = count
    return table
