"""FedAvg in fluke, which trains its clients one after another in one process.

There torch has both cores for the convolutional networks; the small one is faster on a single thread.
"""

from __future__ import annotations

import torch

from benchmarks import stock
from benchmarks.peers import program


def main() -> None:
    """Run rounds."""
    turns = program.turns()
    work = program.workload()
    torch.set_num_threads(1 if work.model == "mlp" else 2)
    program.name_torchvision_operators()
    from fluke import FlukeENV
    from fluke.algorithms.fedavg import FedAVG
    from fluke.client import Client
    from fluke.config import OptimizerConfigurator
    from fluke.data import FastDataLoader
    from fluke.server import EarlyStopping, Server
    from fluke.utils import FederationObserver

    class Turns(FederationObserver):
        """Waits for the next turn before each round."""

        def start_round(self, round: int, global_model: object) -> None:
            if next(turns, "none left") is not None:
                raise EarlyStopping(round)

    FlukeENV().set_eval_cfg(server=False)
    optimizer = OptimizerConfigurator({"name": "SGD", "lr": program.LR, "weight_decay": program.WEIGHT_DECAY})
    clients = [
        Client(
            index,
            FastDataLoader(x, y, num_labels=stock.CLASSES, batch_size=work.batch, shuffle=True),
            None,
            optimizer,
            torch.nn.CrossEntropyLoss(),
            local_epochs=work.epochs,
        )
        for index, (x, y) in enumerate(work.clients())
    ]
    server = Server(stock.make(work.model, work.shape), None, clients)
    federation = FedAVG(len(clients), None, {}, clients, server)
    federation.set_callbacks(Turns())
    federation.run(10**6, 0.1)


if __name__ == "__main__":
    main()
