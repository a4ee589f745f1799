"""Descriptions of runs in words."""

from __future__ import annotations

from collections.abc import Sequence

from fedmim.experiments.config import Config
from fedmim.results.grouping import RunGroup
from fedmim.results.number_formats import listed, percent


def describe_configs(configs: Sequence[Config]) -> str:
    """The configuration of a comparison in one line. The methods may differ in the learning rate only."""
    config = configs[0]
    problem, settings = config.problem, config.settings
    return (
        f"{problem.short('data')}, {problem.split}, {problem.short('model')}, {_clients(config)}, "
        f"{percent(settings.participation)} per round, {_work(config)}, batch {settings.batch_size or 'full'}, "
        f"{_learning_rates(configs)}"
    )


def group_title(group: RunGroup) -> str:
    """The title of a group: its data, and the settings that distinguish it from other groups on the same data."""
    config = group.config
    words = {
        "split": config.problem.split,
        "model": config.problem.short("model"),
        "clients": _clients(config),
        "participation": f"{percent(config.settings.participation)} per round",
        "local_epochs": _work(config),
        "local_steps": _work(config),
        "batch_size": f"batch {config.settings.batch_size or 'full'}",
    }
    words |= {name: f"{name} {config.flat()[name]}" for name in group.facets if name not in words}
    parts = dict.fromkeys(words[name] for name in group.facets)
    data = config.problem.short("data")
    return ", ".join([data, *parts]) if parts else f"{data}, {config.problem.split}"


def group_sentence(group: RunGroup) -> str:
    """A description of the runs of a group."""
    config, labels = group.config, list(group.methods)
    problem, settings = config.problem, config.settings
    names = labels if len(labels) <= 4 else [*labels[:3], f"{len(labels) - 3} more"]
    seeds = len({run.seed for run in group.runs})
    rate = _learning_rates([run.run.config for run in group.runs if run.records] or [config])
    text = (
        f"{listed(names)} on {problem.short('data')}, split {problem.split}: {_clients(config)}, "
        f"{_active(config)} per round, {_rounds(config)}, model {problem.short('model')}, "
        f"{_work(config)} per round, batch {settings.batch_size or 'full'}, {rate}, {seeds} seed{'s' * (seeds > 1)}."
    )
    finished, all_runs = group.count
    return text if finished == all_runs else f"{text} {finished} of {all_runs} runs have ended so far."


def _rounds(config: Config) -> str:
    return f"{'at most ' * config.settings.stops_early}{config.settings.rounds} rounds"


def _clients(config: Config) -> str:
    return f"{config.problem.clients} clients" if config.problem.clients else "all clients of the data"


def _active(config: Config) -> str:
    clients, settings = config.problem.clients, config.settings
    if not clients:  # their number is known when the data is loaded
        return percent(settings.participation)
    active = settings.active(clients)
    return str(active) if active < clients else "all"


def _learning_rates(configs: Sequence[Config]) -> str:
    rates = [config.settings.lr for config in configs]
    low, high = min(rates), max(rates)
    schedules = {config.settings.lr_schedule for config in configs} - {"exponential"}
    schedule = f" ({listed(sorted(schedules))})" if schedules else ""
    return (f"learning rate {low:g}" if low == high else f"learning rates from {low:g} to {high:g}") + schedule


def _work(config: Config) -> str:
    steps, epochs = config.settings.local_steps, config.settings.local_epochs
    number, unit = (steps, "step") if steps else (epochs, "epoch")
    return f"{number} {unit}{'s' * (number != 1)}"
