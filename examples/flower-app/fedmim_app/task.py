"""What server and clients share: the method, the settings and the data, from the run's configuration."""

from flwr.app import Context

from fedmim import Algorithm, Settings, Task
from fedmim.experiments.methods import parse_list
from fedmim.experiments.run import Run

SERVERS = ("wait", "timeout", "folder", "resume", "state-dir")  # read elsewhere


def read(context: Context) -> Run:
    """The method with its options, and the whole configuration."""
    values = {name.replace("-", "_"): v for name, v in context.run_config.items() if name not in SERVERS and v != ""}
    ((method, own),) = parse_list(str(values.pop("method")))
    return Run.make(method, {**values, **own}, where="run config")


def algorithm(context: Context) -> Algorithm:
    """The method."""
    return read(context).algorithm


def settings(context: Context) -> Settings:
    """Rounds, learning rate and so on."""
    return read(context).config.settings


def whole_task(context: Context) -> Task:
    """The data of all clients and the model. A client takes its own part, which the seed decides on every machine."""
    return read(context).config.task()


def task_for_partition(partition: int, context: Context) -> Task:
    """The client's data and the model. Replace this by your own: Task(model, clients=[(x, y)], test=(x, y))."""
    return whole_task(context)
