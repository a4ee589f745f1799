"""What was run, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedmim.results.number_formats import listed, percent

if TYPE_CHECKING:
    from fedmim.experiments.config import Config
    from fedmim.results.grouping import RunGroup


def describe_config(config: Config) -> str:
    """What is compared, in a line."""
    parts = [
        config.data,
        config.split,
        config.model,
        f"{config.clients} clients",
        f"{percent(config.participation)} per round",
        _work(config),
        f"batch {config.batch_size or 'full'}",
        f"learning rate {config.lr:g}",
    ]
    return ", ".join(parts)


def group_title(group: RunGroup) -> str:
    """A group's name: its data, and the settings that distinguish it from other groups on the same data."""
    config = group.config
    words = {
        "clients": f"{config.clients} clients",
        "participation": f"{percent(config.participation)} per round",
        "local_epochs": _work(config),
        "local_steps": _work(config),
        "batch_size": f"batch {config.batch_size or 'full'}",
    }
    parts = dict.fromkeys(words.get(name) or _named(name, getattr(config, name)) for name in group.facets)
    return ", ".join([config.data, *parts]) if parts else f"{config.data}, {config.split}"


def group_sentence(group: RunGroup) -> str:
    """What was run, in a sentence."""
    config, labels = group.config, list(group.methods)
    names = labels if len(labels) <= 4 else [*labels[:3], f"{len(labels) - 3} more"]
    seeds = len({run.seed for run in group.runs})
    active = config.active(config.clients)
    rates = sorted({run.run.config.lr for run in group.runs if run.records} or {config.lr})
    rate = f"learning rate {rates[0]:g}" if len(rates) == 1 else f"learning rates from {rates[0]:g} to {rates[-1]:g}"
    text = (
        f"{listed(names)} on {config.data}, split {config.split} over {config.clients} clients of which "
        f"{active if active < config.clients else 'all'} train in each of {config.rounds} rounds: "
        f"model {config.model}, {_work(config)} per round, batch {config.batch_size or 'full'}, {rate}, "
        f"{seeds} seed{'s' * (seeds > 1)}."
    )
    finished, all_runs = group.count
    return text if finished == all_runs else f"{text} So far: {finished} of {all_runs} runs have ended."


def _work(config: Config) -> str:
    number, unit = (config.local_steps, "step") if config.local_steps else (config.local_epochs, "epoch")
    return f"{number} {unit}{'s' * (number > 1)}"


def _named(name: str, value: Any) -> str:
    return str(value) if name in ("split", "model") else f"{name} {value}"
