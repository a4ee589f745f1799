"""Several runs at once: the time of `fedmim compare` with jobs relative to one run after the other.

Both take turns, so that other load on the machine affects them equally. Training lasts from the first step of the first
run to the final model of the last one; the rest is start-up, checks, table and page. A ratio above 1 means that jobs
are faster.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.load import head, row
from fedmim.cores import cores

REPEATS = 3
ROUNDS = 10  # of the convolutional network
SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Seconds:
    """The time of a command."""

    whole: float
    training: float
    cpu: float  # of all processes

    @classmethod
    def of(cls, words: list[str], folder: Path) -> Seconds:
        """Run `fedmim compare` in a new folder and measure it."""
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "fedmim", "compare", *words, "--quiet", "--out", str(folder)]
        begin, used = time.perf_counter(), cpu_of_children()
        subprocess.run(command, check=True)
        return cls(time.perf_counter() - begin, training_seconds(folder), cpu_of_children() - used)


def cpu_of_children() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def training_seconds(folder: Path) -> float:
    """From the start of the first run, when its client labels are written, to the final model of the last one."""
    starts = [path.stat().st_mtime for path in folder.glob("*/clients.json")]
    return max(path.stat().st_mtime for path in folder.glob("*/model.safetensors")) - min(starts)


def random_images(path: Path) -> None:
    """Data in the shape of CIFAR-10. Its values do not affect the time."""
    generator = torch.Generator().manual_seed(0)

    def part(name: str, count: int) -> dict[str, torch.Tensor]:
        x = torch.randint(0, 256, (count, *SHAPE), generator=generator, dtype=torch.uint8)
        return {f"x_{name}": x, f"y_{name}": torch.randint(0, 10, (count,), generator=generator)}

    save_file(part("train", 50_000) | part("test", 10_000), path)


def commands(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Each comparison one run after the other, and with jobs."""
    data = folder / "images.safetensors"
    random_images(data)
    cnn = ["--data", f"tensors:{data}", "--model", "cnn", "--split", "dirichlet:0.1", "--clients", "100"]
    cnn += ["--participation", "0.1", "--batch-size", "50", "--local-epochs", "1", "--clip-norm", "10"]
    cnn += ["--rounds", str(ROUNDS), "--eval-every", str(ROUNDS)]
    return {
        "the demo: ten methods, mlp, 150 rounds": (["--jobs", "1"], []),
        f"seven methods, cnn, {ROUNDS} rounds; one after the other with worker processes": (
            [*cnn, "--engine", "processes", "--jobs", "1"],
            [*cnn, "--jobs", str(cores())],
        ),
    }


def table() -> str:
    """The medians of both, and of the ratios of consecutive commands."""
    titles = ["whole s", "with jobs", "ratio", "training s", "with jobs", "ratio", "CPU s", "with jobs"]
    lines = head(f"{cores()} cores", *titles)
    place = Path(tempfile.mkdtemp(prefix="fedmim-jobs-"))
    try:
        for name, (alone, jobs) in commands(place).items():
            pairs = [(Seconds.of(alone, place / "a"), Seconds.of(jobs, place / "b")) for _ in range(REPEATS)]
            lines.append(row(name, *cells(pairs)))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return "\n".join(lines)


def cells(pairs: list[tuple[Seconds, Seconds]]) -> list[str]:
    """The cells of a line of the table."""
    median = statistics.median
    found = []
    for name in ("whole", "training", "cpu"):
        times = [(getattr(alone, name), getattr(jobs, name)) for alone, jobs in pairs]
        found += [f"{median(alone for alone, _ in times):.1f}", f"{median(jobs for _, jobs in times):.1f}"]
        found += [f"{median(alone / jobs for alone, jobs in times):.2f}"] if name != "cpu" else []
    return found
