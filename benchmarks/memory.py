"""Peak memory of all processes of a run, with shared pages counted once.

python -m benchmarks.memory W2            # run three rounds, print the peak in GB
python -m benchmarks.memory scaffold-500  # 22 GB of control variates
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import fedmim
from benchmarks.workloads import ENGINES, WORKLOADS

MANY = 500  # clients of SCAFFOLD with resnet18, a control variate of 45 MB each


class Peak:
    """The largest sum of proportional set sizes of this process and its children, sampled five times a second."""

    def __init__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            self.bytes = max(self.bytes, sum(map(proportional_set_size, family())))


def family() -> list[int]:
    """The ids of this process and its children."""
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [os.getpid(), *(int(child) for path in children for child in path.read_text().split())]


def proportional_set_size(process: int) -> int:
    """Memory of a process in bytes, with its share of shared pages; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def gigabytes(name: str) -> float:
    """The peak of a workload, measured in a separate process."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.memory", name], stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def measure(name: str) -> float:
    """Run in this process and measure the peak in GB."""
    with Peak() as peak:
        if name == "scaffold-500":
            task = WORKLOADS["W2"].task(clients=MANY, samples=4)
            settings = fedmim.Settings(rounds=3, participation=0.5, local_steps=1, batch_size=4, eval_every=3)
            run = fedmim.rounds(fedmim.Scaffold(), task, settings, fedmim.Execution("processes"))
        else:
            workload = WORKLOADS[name]
            run = fedmim.rounds(fedmim.FedMIM(), workload.task(), *workload.protocol(ENGINES[name]))
        for _ in range(3):
            begin = time.perf_counter()
            next(run)
            print(f"{name}: round of {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    return peak.bytes / 1e9


def table() -> str:
    """The peak memory of the workloads."""
    lines = ["| | peak GB |", "|---|---|"]
    lines += [f"| {name}, FedMIM, {ENGINES[name]} | {gigabytes(name):.2f} |" for name in WORKLOADS]
    lines.append(f"| SCAFFOLD with resnet18, {MANY} clients | {gigabytes('scaffold-500'):.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(measure(sys.argv[1]))
