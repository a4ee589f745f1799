"""What was run, in words."""

from __future__ import annotations

from fedmim.experiments.config import Config
from fedmim.results.grouping import RunGroup
from fedmim.results.number_formats import listed, percent


def describe_config(config: Config) -> str:
    """What is compared, in a line."""
    problem, settings = config.problem, config.settings
    return (
        f"{problem.data}, {problem.split}, {problem.model}, {problem.clients} clients, "
        f"{percent(settings.participation)} per round, {_work(config)}, batch {settings.batch_size or 'full'}, "
        f"learning rate {settings.lr:g}"
    )


def group_title(group: RunGroup) -> str:
    """A group's name: its data, and the settings that distinguish it from other groups on the same data."""
    config = group.config
    words = {
        "split": config.problem.split,
        "model": config.problem.model,
        "clients": f"{config.problem.clients} clients",
        "participation": f"{percent(config.settings.participation)} per round",
        "local_epochs": _work(config),
        "local_steps": _work(config),
        "batch_size": f"batch {config.settings.batch_size or 'full'}",
    }
    words |= {name: f"{name} {config.flat()[name]}" for name in group.facets if name not in words}
    parts = dict.fromkeys(words[name] for name in group.facets)
    return ", ".join([config.problem.data, *parts]) if parts else f"{config.problem.data}, {config.problem.split}"


def group_sentence(group: RunGroup) -> str:
    """What was run, in a sentence."""
    config, labels = group.config, list(group.methods)
    problem, settings = config.problem, config.settings
    names = labels if len(labels) <= 4 else [*labels[:3], f"{len(labels) - 3} more"]
    seeds = len({run.seed for run in group.runs})
    active = settings.active(problem.clients)
    rates = sorted({run.run.config.settings.lr for run in group.runs if run.records} or {settings.lr})
    rate = f"learning rate {rates[0]:g}" if len(rates) == 1 else f"learning rates from {rates[0]:g} to {rates[-1]:g}"
    text = (
        f"{listed(names)} on {problem.data}, split {problem.split} over {problem.clients} clients of which "
        f"{active if active < problem.clients else 'all'} train in each of {settings.rounds} rounds: "
        f"model {problem.model}, {_work(config)} per round, batch {settings.batch_size or 'full'}, {rate}, "
        f"{seeds} seed{'s' * (seeds > 1)}."
    )
    finished, all_runs = group.count
    return text if finished == all_runs else f"{text} So far: {finished} of {all_runs} runs have ended."


def _work(config: Config) -> str:
    steps, epochs = config.settings.local_steps, config.settings.local_epochs
    number, unit = (steps, "step") if steps else (epochs, "epoch")
    return f"{number} {unit}{'s' * (number > 1)}"
