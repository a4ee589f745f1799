"""How the time per round grows with the clients per round (S), all clients (N), the model size (d) and the workers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import fedmim
from fedmim.models import make_model

REPEATS = 7


class MadeWhenAsked(Sequence[tuple[Tensor, Tensor]]):
    """Any number of clients with 14 samples each, created on access."""

    def __init__(self, clients: int, shape: tuple[int, ...] = (1, 8, 8), samples: int = 14) -> None:
        self._clients, self._shape, self._samples = clients, shape, samples

    def __len__(self) -> int:
        return self._clients

    def __getitem__(self, client):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN204
        generator = torch.Generator().manual_seed(client)
        x = torch.randn(self._samples, *self._shape, generator=generator)
        return x, torch.randint(0, 10, (self._samples,), generator=generator)


def side_by_side(runs: dict[str, fedmim.Rounds], warm: int) -> dict[str, float]:
    """Median seconds per round of runs that take turns."""
    for run in runs.values():
        for _ in range(warm):
            next(run)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            begin = time.perf_counter()
            next(run)
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(each) for name, each in seconds.items()}


def run(
    clients: int = 100, active: int = 10, width: int = 64, image: bool = False, workers: int | None = None
) -> fedmim.Rounds:
    """An endless run of FedMIM: digits and an MLP on the vectorised engine, or images and cnn on processes."""
    shape = (3, 32, 32) if image else (1, 8, 8)
    data = MadeWhenAsked(clients, shape, 100 if image else 14)
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    model = make_model("cnn", shape, 10) if image else mlp
    settings = fedmim.Settings(
        rounds=10**6,
        participation=active / clients,
        batch_size=50 if image else 7,
        lr=0.01,
        eval_every=10**6,
    )
    execution = fedmim.Execution("processes" if image else "vectorised", workers)
    return fedmim.rounds(fedmim.FedMIM(), fedmim.Task(model, data, data[0]), settings, execution)


def lines(title: str, per: dict[str, Callable[[str], float]], runs: dict[str, fedmim.Rounds], warm: int) -> list[str]:
    """A table of one kind of growth: milliseconds per round, also divided by what they should grow with."""
    rows = [f"| {' | '.join([title, 'ms per round', *per])} |", "|---" * (2 + len(per)) + "|"]
    for name, seconds in side_by_side(runs, warm).items():
        parts = "".join(f" {1e3 * seconds / divisor(name):.4g} |" for divisor in per.values())
        rows.append(f"| {name} | {1e3 * seconds:.2f} |{parts}")
    return [*rows, ""]


def table() -> str:
    """All four tables."""
    rounds = {str(active): run(1000, active) for active in (1, 4, 16, 64, 256)}
    whole = lines("S, clients per round", {"ms per client": float}, rounds, warm=12)
    rounds = {f"{clients:,}": run(clients, 10) for clients in (100, 10_000, 1_000_000)}
    whole += lines("N, clients", {}, rounds, warm=12)
    rounds = {f"{75 * width + 10:,}": run(width=width) for width in (64, 256, 1024, 4096)}
    whole += lines("d, parameters", {"ms per million": lambda d: int(d.replace(",", "")) / 1e6}, rounds, warm=12)
    rounds = {str(workers): run(image=True, workers=workers) for workers in (1, 2)}
    whole += lines("workers", {"ms per round times workers": lambda each: 1 / int(each)}, rounds, warm=2)
    return "\n".join(whole).rstrip()
