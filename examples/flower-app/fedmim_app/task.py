"""What server and clients share: the method, the settings and the data, from the run's configuration."""

from functools import cache

from flwr.app import Context

from fedmim import Algorithm, Settings, Task
from fedmim.experiments.config import Config
from fedmim.experiments.methods import Run, parse_list

SERVERS = ("wait", "timeout", "folder", "resume", "state-dir")  # read elsewhere


def read(context: Context) -> Run:
    """The method with its options, and all settings."""
    values = {name.replace("-", "_"): v for name, v in context.run_config.items() if name not in SERVERS and v != ""}
    ((method, own),) = parse_list(str(values.pop("method")))
    return Run.make(method, {**values, **own}, where="run config")


def algorithm(context: Context) -> Algorithm:
    """The method."""
    return read(context).algorithm


def settings(context: Context) -> Settings:
    """Rounds, rate and so on."""
    return read(context).config


def task_for_partition(partition: int, context: Context) -> Task:
    """The client's data and the model. Replace this by your own: Task(model, clients=[(x, y)], test=(x, y))."""
    return whole_task(read(context).config)


@cache  # in a simulation one process answers many messages
def whole_task(config: Config) -> Task:
    """A built-in data set, split over the clients by the seed, so that every machine finds the same parts."""
    return Task.named(
        config.data,
        split=config.split,
        clients=config.clients,
        model=config.model,
        seed=config.seed,
        data_dir=config.data_dir,
    )
