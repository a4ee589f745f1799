"""What was run, in words; and numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmim.experiments.config import Config
    from fedmim.report.sets import Problem


def describe(config: Config) -> str:
    """What is compared, in a line."""
    parts = [
        config.problem.data,
        config.problem.split,
        config.problem.model,
        f"{config.problem.clients} clients",
        f"{percent(config.settings.participation)} a round",
    ]
    return ", ".join(
        [*parts, f"{_work(config)}, batch {config.settings.batch_size or 'full'}", f"rate {config.settings.lr:g}"]
    )


def title(problem: Problem) -> str:
    """A problem's name among the others of its set: its data, and what it differs in from others on the same data."""
    config = problem.config
    words = {
        "clients": f"{config.problem.clients} clients",
        "participation": f"{percent(config.settings.participation)} a round",
        "local_epochs": _work(config),
        "local_steps": _work(config),
        "batch_size": f"batch {config.settings.batch_size or 'full'}",
    }
    parts = dict.fromkeys(words.get(name) or _named(name, config.flat()[name]) for name in problem.facets)
    return ", ".join([config.problem.data, *parts]) if parts else f"{config.problem.data}, {config.problem.split}"


def sentence(problem: Problem) -> str:
    """What was run, in a sentence."""
    config, labels = problem.config, list(problem.styles)
    names = labels if len(labels) <= 4 else [*labels[:3], f"{len(labels) - 3} more"]
    runs = [run for method in problem.lines + problem.behind for run in method.seeds]
    runs += [folder.run.config.settings.seed for folder in problem.waiting]
    seeds = len(set(runs))
    active = config.settings.active(config.problem.clients)
    rates = sorted({method.run.config.settings.lr for method in problem.lines + problem.behind} or {config.settings.lr})
    rate = f"rate {rates[0]:g}" if len(rates) == 1 else f"rates from {rates[0]:g} to {rates[-1]:g}"
    text = (
        f"{listed(names)} on {config.problem.data}, split {config.problem.split} over {config.problem.clients} clients of which "
        f"{active if active < config.problem.clients else 'all'} train in each of {config.settings.rounds} rounds: "
        f"model {config.problem.model}, {_work(config)} a round, batch {config.settings.batch_size or 'full'}, {rate}, "
        f"{seeds} seed{'s' * (seeds > 1)}."
    )
    ended, all_runs = problem.count
    return text if ended == all_runs else f"{text} So far: {ended} of {all_runs} runs have ended."


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def percent(part: float) -> str:
    """0.1 as 10%."""
    return f"{100 * part:.4g}%"


def size(count: float) -> str:
    """Bytes in the unit that suits: 38.5 MB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits: 42 s, 3 min 10 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def clock(seconds: float) -> str:
    """Seconds as a clock has them, where there is little room: 0:42, 3:10, 2:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _work(config: Config) -> str:
    number, unit = (
        (config.settings.local_steps, "step")
        if config.settings.local_steps
        else (config.settings.local_epochs, "epoch")
    )
    return f"{number} {unit}{'s' * (number > 1)}"


def _named(name: str, value: Any) -> str:
    return str(value) if name in ("split", "model") else f"{name} {value}"
