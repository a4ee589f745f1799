"""The bare limit: one single-threaded process per core that runs the same SGD steps with standard modules.

Run as a program, it is one of these processes: for each line on standard input it runs its part of a round and prints
the seconds.
"""

from __future__ import annotations

import subprocess
import sys
import time

import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks import stock
from benchmarks.workloads import WORKLOADS, Workload

PROCESSES = 2


class Bare:
    """The processes, ready to run rounds."""

    def __init__(self, workload: Workload) -> None:
        command = [sys.executable, "-m", "benchmarks.bare", workload.name]
        pipe = subprocess.PIPE
        self._processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(PROCESSES)]

    def __call__(self) -> None:
        """Run the steps of one round, spread over the processes."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.readline()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.communicate()


def serve(workload: Workload) -> None:
    """Run a process's part of a round for each line."""
    torch.set_num_threads(1)
    images = len(workload.shape) == 3 and workload.model != "mlp"
    layout = torch.channels_last if images else torch.contiguous_format
    module = stock.make(workload.model, workload.shape).to(memory_format=layout)
    x = torch.randn(workload.batch, *workload.shape).contiguous(memory_format=layout)
    y = torch.randint(0, 10, (workload.batch,))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in sys.stdin:
        begin = time.perf_counter()
        for _ in range(workload.steps // PROCESSES):
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    serve(WORKLOADS[sys.argv[1]])
