"""The method, settings and data that server and clients share, from the run's configuration."""

from pathlib import Path

from flwr.app import Context

from fedmim import Algorithm, Settings, Task
from fedmim.errors import UserError
from fedmim.experiments.methods import parse_list
from fedmim.experiments.run import Run

SERVERS = ("wait", "timeout", "folder", "resume", "client-state", "partition-keys", "state-dir")  # not read here
APP = Path(__file__).parents[1]  # the folder of the app, wherever Flower has installed it


def read(context: Context) -> Run:
    """The method with its options and the whole configuration."""
    values = {name.replace("-", "_"): v for name, v in context.run_config.items() if name not in SERVERS and v != ""}
    methods = parse_list(str(values.pop("method", "")))
    if len(methods) != 1:
        raise UserError(f"run config: method must be one method, got {len(methods)}")
    method, own = methods[0]
    for name in ("model", "data"):  # your own files of this app, such as fedmim_app/net.py:Net
        if (APP / str(values.get(name, "")).rpartition(":")[0]).is_file():
            values[name] = f"{APP / str(values[name])}"
    return Run.make(method, {**values, **own}, where="run config")


def algorithm(context: Context) -> Algorithm:
    """The method."""
    return read(context).algorithm


def settings(context: Context) -> Settings:
    """Rounds, learning rate and so on."""
    return read(context).config.settings


def whole_task(context: Context) -> Task:
    """The model and the data of all clients. The seed determines each client's part, equally on every machine."""
    return read(context).config.task()


def task_for_partition(partition: int, context: Context) -> Task:
    """The model and the client's data. Replace this with your own: Task(model, clients=[(x, y)], test=(x, y))."""
    return whole_task(context)
