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
    from torch import Tensor

    from fedmim.simulation.task import Task

CLIENT_LABELS = "clients.json"
CELLS = 10**8  # limit on clients x classes when reading


def write_client_labels(task: Task, folder: Path) -> None:
    """Write the counts of a task with class labels in memory. For other tasks, do nothing."""
    import numpy as np
    from torch import cat

    found = _labels(task)
    if found is None:
        return
    labels = cat(found).cpu().numpy()
    classes = int(labels.max()) + 1
    if labels.min() < 0 or classes * len(found) > CELLS:  # numbers, but not those of classes
        return
    owners = np.repeat(np.arange(len(found)), list(map(len, found)))
    held, counts = np.unique(owners * classes + labels, return_counts=True)
    sparse: list[dict[str, int]] = [{} for _ in found]
    for place, count in zip(held.tolist(), counts.tolist(), strict=True):
        sparse[place // classes][str(place % classes)] = count
    write_text(folder / CLIENT_LABELS, json.dumps({"classes": classes, "clients": sparse}) + "\n")


def _labels(task: Task) -> list[Tensor] | None:
    """The whole numbers, one per sample, of each client; None if there are none, or if clients are read on access."""
    from torch import Tensor

    from fedmim.data import Clients, LiveData

    clients = task.clients
    if isinstance(clients, Clients):
        found = [clients.y[part] for part in clients.parts] if isinstance(clients.y, Tensor) else []
    elif isinstance(clients, list | tuple) and not any(isinstance(each, LiveData) for each in clients):
        found = [y for _, y in clients]
    else:
        return None
    numbers = all(
        isinstance(y, Tensor) and y.dim() == 1 and not (y.is_floating_point() or y.is_complex()) for y in found
    )
    return found if found and numbers else None


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
