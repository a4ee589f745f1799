"""FedAvg in fedlab: a server and two processes of one thread, each simulating half of the clients one by one.

Its standalone pipeline, all clients in one process, was no faster on the small network either.
"""

from __future__ import annotations

import logging
import multiprocessing
import random

import torch

from benchmarks import stock
from benchmarks.peers import program

PROCESSES = 2
EACH = 100 // PROCESSES  # clients of a process


class Data:
    """The clients of one process, for fedlab's trainer."""

    def __init__(self, clients: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self.clients = clients

    def get_dataloader(self, id: int, batch_size: int) -> program.Batches:
        """A client's minibatches."""
        return program.Batches(*self.clients[id], batch_size)


def simulate(rank: int, port: int) -> None:
    """Be the process of a part of the clients."""
    torch.set_num_threads(1)
    program.name_torchvision_operators()
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.core.client.manager import PassiveClientManager
    from fedlab.core.network import DistNetwork

    logging.disable()  # of every message
    work = program.workload()
    trainer = SGDSerialClientTrainer(stock.make(work.model, work.shape), EACH)
    trainer.setup_dataset(Data(work.clients()[(rank - 1) * EACH : rank * EACH]))
    trainer.setup_optim(work.epochs, work.batch, program.LR)
    trainer.optimizer = program.sgd(trainer.model)  # its own has no weight decay
    PassiveClientManager(DistNetwork(("127.0.0.1", port), PROCESSES + 1, rank), trainer).run()


def main() -> None:
    """Be the server, and start the processes of the clients."""
    turns = program.turns()
    work, port = program.workload(), program.free_port()
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=simulate, args=(rank, port)) for rank in range(1, PROCESSES + 1)]
    for process in processes:
        process.start()
    torch.set_num_threads(1)
    program.name_torchvision_operators()
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler
    from fedlab.core.network import DistNetwork
    from fedlab.core.server.manager import SynchronousServerManager

    class Handler(SyncServerHandler):
        """fedlab's own server, which waits for its turn and gives each process the same number of clients."""

        @property
        def if_stop(self) -> bool:
            """Asked before each round."""
            return next(turns, "none left") is not None

        def sample_clients(self) -> list[int]:
            count = self.num_clients_per_round // PROCESSES
            return [rank * EACH + chosen for rank in range(PROCESSES) for chosen in random.sample(range(EACH), count)]

    logging.disable()
    handler = Handler(stock.make(work.model, work.shape), global_round=10**6, sample_ratio=0.1)
    SynchronousServerManager(DistNetwork(("127.0.0.1", port), PROCESSES + 1, 0), handler).run()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
