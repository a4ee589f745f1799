"""What server and clients share: the method, the settings and the data, from the run's configuration."""

from functools import cache

from flwr.app import Context

from fedmim import Algorithm, Settings, Task
from fedmim.experiments.config import Config
from fedmim.experiments.methods import Run

OURS = ("method", "wait", "timeout", "folder", "resume", "state-dir", "threads")  # not settings of a run
LISTS = ("alpha", "beta")  # of FedMIM; a list is written with commas, because Flower has none


def read(context: Context) -> Run:
    """The method with its options, and all settings."""
    config = context.run_config
    values = {name.replace("-", "_"): value for name, value in config.items() if name not in OURS and value != ""}
    if config["method"] == "fedmim":
        values |= {name: [float(w) for w in str(values[name]).split(",")] for name in LISTS if name in values}
    return Run.make(str(config["method"]), values, where="run config")


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
