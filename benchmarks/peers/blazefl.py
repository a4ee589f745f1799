"""FedAvg in blazefl: two threads for the convolutional networks; for the small one the faster of threads and the serial
trainer, which the first turn finds out, as Python's lock leaves threads little to gain there.

Its process pool is started anew for each round, which alone costs more than a round of the small network.
"""

from __future__ import annotations

import sys
import threading
import time
from queue import SimpleQueue

import torch
from blazefl.contrib.fedavg import FedAvgBaseServerHandler, FedAvgDownlinkPackage, FedAvgUplinkPackage
from blazefl.core import BaseClientTrainer, ModelSelector, ThreadPoolClientTrainer, deserialize_model, serialize_model
from torch import nn

from benchmarks import stock
from benchmarks.peers import program
from benchmarks.workloads import Workload

THREADS = 2


class Stock(ModelSelector):
    """The workload's network."""

    def __init__(self, work: Workload) -> None:
        self.work = work

    def select_model(self, model_name: str) -> nn.Module:
        """Called by blazefl."""
        return stock.make(model_name, self.work.shape)


class Training:
    """A client's work, the same in each mode."""

    def __init__(self, work: Workload, modules: int) -> None:
        self.work = work
        self.clients = [program.Batches(x, y, work.batch) for x, y in work.clients()]
        self.modules: SimpleQueue[nn.Module] = SimpleQueue()  # one for each thread, used again and again
        for _ in range(modules):
            self.modules.put(stock.make(work.model, work.shape))
        self.cache: list[FedAvgUplinkPackage] = []

    def train(self, cid: int, payload: FedAvgDownlinkPackage) -> FedAvgUplinkPackage:
        """Train from the server's parameters."""
        module = self.modules.get()
        deserialize_model(module, payload.model_parameters)
        program.train(module, self.clients[cid], self.work.epochs)
        package = FedAvgUplinkPackage(cid, serialize_model(module), self.work.samples)
        self.modules.put(module)
        return package

    def uplink_package(self) -> list[FedAvgUplinkPackage]:
        """What the clients sent."""
        packages, self.cache = self.cache, []
        return packages


class Serial(Training, BaseClientTrainer[FedAvgUplinkPackage, FedAvgDownlinkPackage]):
    """One client after another."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work, 1)

    def local_process(self, payload: FedAvgDownlinkPackage, cid_list: list[int]) -> None:
        """Called with the clients of a round."""
        self.cache = [self.train(cid, payload) for cid in cid_list]


class Threads(Training, ThreadPoolClientTrainer[FedAvgUplinkPackage, FedAvgDownlinkPackage]):
    """As many clients at once as there are threads."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work, THREADS)
        self.num_parallels, self.device, self.stop_event = THREADS, "cpu", threading.Event()

    def worker(
        self, cid: int, device: str, payload: FedAvgDownlinkPackage, stop_event: threading.Event
    ) -> FedAvgUplinkPackage:
        """Called in a thread of the pool."""
        return self.train(cid, payload)


def main() -> None:
    """Run rounds."""
    turns = program.turns()
    torch.set_num_threads(1)
    work = program.workload()
    server = FedAvgBaseServerHandler(
        model_selector=Stock(work),
        model_name=work.model,
        dataset=None,
        global_round=10**6,
        num_clients=100,
        sample_ratio=0.1,
        device="cpu",
        batch_size=work.batch,
        seed=0,
    )

    def run(trainer: Training) -> float:
        begin = time.perf_counter()
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        return time.perf_counter() - begin

    trainer: Training = Threads(work)
    if work.model == "mlp":
        next(turns)  # the first turn, which nobody times
        trainer = min((trainer, Serial(work)), key=lambda each: min(run(each) for _ in range(20)))
        print(f"{type(trainer).__name__} is faster", file=sys.stderr)
    for _ in turns:
        run(trainer)


if __name__ == "__main__":
    main()
