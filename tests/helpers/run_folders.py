"""Run folders as training would leave them, with records of one's own choice."""

import json
import math
from pathlib import Path

from fedmim.experiments.comparison import Comparison, run_folders
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.results.method_results import MethodResults, RunResult


def record(number, accuracy, *, loss=1.0, consistency=0.5, up=10, down=30, refused=0, seconds=0.5):
    return {
        "round": number,
        "test_accuracy": accuracy,
        "test_loss": loss,
        "train_loss": loss / 2,
        "consistency": consistency,
        "lr": 0.1,
        "clients": [0, 1],
        "bytes_up": up,
        "bytes_down": down,
        "refused": refused,
        "seconds": seconds,
    }


def fill(folder, records):
    """Give a run folder its records; all of them make it a finished run."""
    lines = "".join(json.dumps(each) + "\n" for each in records)
    (folder.path / "metrics.jsonl").write_text(lines)
    if len(records) >= folder.run.config.settings.rounds:
        (folder.path / "model.safetensors").write_bytes(b"")
    skew = {"classes": 3, "clients": [{"0": 4}, {"1": 3, "2": 1}, {"0": 1, "1": 1, "2": 2}]}
    (folder.path / "clients.json").write_text(json.dumps(skew))


def evaluate_clients(folder, *lines, **facts):
    """Give a run folder the evaluations of its three clients: (round, of the global model, personal)."""
    given = {"evaluated_on": "test", "sizes": [4, 4, 400], "test_sizes": [1, 2, 3], "names": ["a", "b", "<b>c</b>"]}
    rows = [given | facts, *({"round": t, "model": model, "personal": own} for t, model, own in lines)]
    (folder.path / "per_client.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rising(top, rounds, pace=6.0):
    """Accuracies that rise to the top, with a wiggle."""
    return [top * (1 - math.exp(-t / pace)) + 0.004 * math.sin(5 * t) for t in range(1, rounds + 1)]


def comparison(path, entries, seeds=(0,), rounds=40, target=0.5, **settings):
    """A finished comparison; entries are (method, label, settings of its own), the later ones the better."""
    values = defaults("digits") | {"rounds": rounds} | settings
    runs = tuple(Run.make(method, values | own, label) for method, label, own in entries)
    folders = run_folders(Comparison(runs, seeds, target), path)
    for number, folder in enumerate(folders):
        place, seed = number % len(runs), folder.run.config.settings.seed
        accuracies = rising(0.7 + 0.05 * place + 0.01 * seed, rounds)
        records = [
            record(
                t,
                accuracy,
                loss=2 - accuracy,
                consistency=0.1 ** (place + t / 40),
                up=1000 * (place + 1),
                down=2000,
                seconds=0.25 + 0.01 * seed,
            )
            for t, accuracy in enumerate(accuracies, start=1)
        ]
        fill(folder, records)
    return folders


def method_results(name, *runs, target=0.5, label=None, folder=Path(), **fields):
    """The results of a method from the accuracies of its runs, seed by seed."""
    run = Run.make(name, defaults("digits"), label)
    return MethodResults(
        tuple(
            RunResult(
                run.replace(seed=seed),
                folder / f"{name}-seed{seed}",
                [record(t, accuracy, **fields) for t, accuracy in enumerate(accuracies, start=1)],
            )
            for seed, accuracies in enumerate(runs)
        ),
        target,
    )
